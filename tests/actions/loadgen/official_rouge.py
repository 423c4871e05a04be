"""The arithmetic of MLPerf's evaluation, implemented again without the project's code.

mlcommons/inference, language/llama3.1-8b/evaluation.py: strip, one sentence per line, rouge_score with its
stemmer for each pair, the mean of the F-measures in percent, the characters of the answers. It runs in the
environment with rouge_score, reads pairs as JSON from standard input and writes the scores as JSON. The
evaluation has NLTK download punkt_tab; here the argument names its folder, or none for an untrained one.
"""

import json
import sys

import nltk
import numpy as np
from nltk.tokenize.punkt import PunktSentenceTokenizer
from rouge_score import rouge_scorer

pairs = json.load(sys.stdin)
nltk.data.path[:] = sys.argv[1:]
tokenize = nltk.sent_tokenize if sys.argv[1:] else PunktSentenceTokenizer().tokenize
answers = ["\n".join(tokenize(answer.strip())) for answer, _ in pairs]
references = ["\n".join(tokenize(reference.strip())) for _, reference in pairs]
names = ["rouge1", "rouge2", "rougeL", "rougeLsum"]
scorer = rouge_scorer.RougeScorer(names, use_stemmer=True)
scores = [scorer.score(reference, answer) for answer, reference in zip(answers, references, strict=True)]
print(  # noqa: T201
    json.dumps(
        {name: round(float(np.mean([score[name].fmeasure for score in scores])) * 100, 4) for name in names}
        | {"gen_len": int(np.sum([len(answer) for answer in answers])), "gen_num": len(answers)}
    )
)

CREATE TABLE IF NOT EXISTS llama_bench (
  build_commit TEXT,
  build_number INTEGER,
  model_filename TEXT,
  model_type TEXT,
  n_prompt INTEGER,
  n_gen INTEGER,
  n_depth INTEGER,
  test_time TEXT,
  avg_ts REAL,
  stddev_ts REAL
);

INSERT INTO llama_bench (build_commit, build_number, model_filename, model_type, n_prompt, n_gen, n_depth, test_time, avg_ts, stddev_ts) VALUES ('1a2b3c4d', '6001', 'm.gguf', 'llama 8B Q4_K - Medium', '512', '0', '0', '2026-11-28T10:00:00Z', '2210.420000', '12.310000');
INSERT INTO llama_bench (build_commit, build_number, model_filename, model_type, n_prompt, n_gen, n_depth, test_time, avg_ts, stddev_ts) VALUES ('1a2b3c4d', '6001', 'm.gguf', 'llama 8B Q4_K - Medium', '0', '128', '0', '2026-11-28T10:00:09Z', '51.030000', '0.120000');

"""``python -m agent``: the program, where its console script is not on PATH."""

from agent.cli.main import main

if __name__ == "__main__":
    main()

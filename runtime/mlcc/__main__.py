"""`python -m mlcc`: the same as the command `mlcc`."""

from mlcc.cli import main

if __name__ == "__main__":
    main()

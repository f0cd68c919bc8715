"""`python -m mlcc_compiler compile ...`: what `mlcc chat` starts in a child process."""

from mlcc.cli import main

if __name__ == "__main__":
    main()

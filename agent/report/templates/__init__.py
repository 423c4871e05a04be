"""The page's templates and style sheet."""

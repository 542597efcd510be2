"""Papers whose results run as checks, one package each, named after the first author and the year."""

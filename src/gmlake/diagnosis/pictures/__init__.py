"""The figures on the page of a diagnosis, each with its drawing."""

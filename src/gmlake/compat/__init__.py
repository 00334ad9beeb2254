"""Other libraries' interfaces implemented by gmlake, for programs written for them."""

"""The interfaces of others over gmlake, for programs that are written for them."""

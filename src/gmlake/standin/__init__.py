"""The stand-in GPU: PyTorch's CUDA build runs on it without a GPU, and asks it for memory."""

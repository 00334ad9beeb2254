/* PyTorch's exceptions, thrown from C.
 *
 * PyTorch takes no error from an allocator but a C++ exception, and its libraries are not linked
 * to. What an exception is made of is looked up by name in the libraries that the process has
 * loaded: the C++ runtime's functions to throw, and the constructor and type of the exception.
 */
#ifndef GML_TORCH_EXCEPTION_H
#define GML_TORCH_EXCEPTION_H

/* Throws c10::OutOfMemoryError with `text`; c10::Error where that type is not to be found. Returns
 * where neither is. The caller holds no lock: it is not returned to, and nothing of it is run. */
void gml_throw_out_of_memory(const char *text);

/* The same with c10::Error. */
void gml_throw_error(const char *text);

#endif

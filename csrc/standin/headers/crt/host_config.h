/* NVIDIA's own checks that the compiler is one that theirs can work with; here there is no other.
 */

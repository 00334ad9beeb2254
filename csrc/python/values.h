/* Arguments and results of every extension module of the package; stateless. */
#ifndef GML_PYTHON_VALUES_H
#define GML_PYTHON_VALUES_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { REASON_BYTES = 512 }; /* of a text that becomes an exception */

typedef struct number_argument {
    const char *name; /* for the message */
    uint64_t value;
} number_argument;

/* A converter for "O&": an integer from 0 to 2^64 - 1; ValueError outside, TypeError for others. */
int convert_number(PyObject *object, void *argument);

/* Its two arguments for such a number. */
#define NUMBER(argument) convert_number, &(argument)

/* The same for a method's only argument; false with an exception. */
bool read_number(PyObject *object, const char *name, uint64_t *out);

/* A private, aligned copy of a bytes-like object of whole records; NULL with an exception. The
 * caller frees it. */
void *copy_records(PyObject *object, size_t record_bytes, size_t *count, const char *name);

/* The same; None has no records. */
void *copy_optional_records(PyObject *object, size_t record_bytes, size_t *count, const char *name);

/* A writable buffer of `count` aligned 64-bit integers; false with an exception. */
bool get_numbers(PyObject *object, size_t count, Py_buffer *view, const char *name);

/* A row of a table of functions: that of PREFIX_NAME, with its signature and what it does. */
#define METHOD(prefix, name, flags, signature, text)                                               \
    {#name, prefix##_##name, flags, #name signature "\n--\n\n" text}
#define KEYWORD_METHOD(prefix, name, signature, text)                                              \
    {#name, (PyCFunction)(void (*)(void))prefix##_##name, METH_VARARGS | METH_KEYWORDS,            \
     #name signature "\n--\n\n" text}

/* The same of NAME. */
#define FUNCTION(name, flags, signature, text) {#name, name, flags, #name signature "\n--\n\n" text}
#define KEYWORD_FUNCTION(name, signature, text)                                                    \
    {#name, (PyCFunction)(void (*)(void))name, METH_VARARGS | METH_KEYWORDS,                       \
     #name signature "\n--\n\n" text}

/* A field of a struct that is a number of 64 bits, for tables of such, which an empty one ends. */
typedef struct number_field {
    const char *name;
    size_t offset;
} number_field;
#define NUMBER_FIELD(type, name) {#name, offsetof(type, name)}

/* A new dict of those fields of a struct; NULL with an exception. */
PyObject *fields_dict(const void *from, const number_field *fields);

/* dict[name] = value; steals `value`, which may be NULL after a failure. -1 on failure. */
int put(PyObject *dict, const char *name, PyObject *value);
int put_number(PyObject *dict, const char *name, uint64_t value);

/* Appends an item and steals it; it may be NULL after a failure. The list, or NULL, and the list is
 * gone, with an exception. */
PyObject *with_item(PyObject *list, PyObject *item);

/* The tuple of a list, which is stolen; NULL after a failure. */
PyObject *as_tuple(PyObject *list);

#endif

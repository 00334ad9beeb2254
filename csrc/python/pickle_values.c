/* Numbers and texts of a pickle. */
#include "pickle_reader.h"

#include <string.h>

enum { LONGEST_SHARED_TEXT = 256 };

static const char LONG_NUMBER[] = "a whole number has more than 64 bits";

outcome
push_unsigned(reader *in, size_t bytes)
{
    uint64_t value = 0;
    if (!take_number(in, bytes, &value)) {
        return REFUSED;
    }
    return pile_add(&in->stack, PyLong_FromUnsignedLongLong(value));
}

/* A number in two's complement of at most 8 bytes. */
outcome
push_signed(reader *in, size_t bytes)
{
    uint64_t value = 0;
    if (!take_number(in, bytes, &value)) {
        return REFUSED;
    }
    unsigned unused_bits = 64U - 8U * (unsigned)bytes;
    bool is_negative = bytes && (value >> (8 * bytes - 1));
    if (is_negative && unused_bits) {
        value |= UINT64_MAX << (64U - unused_bits);
    }
    int64_t number = 0;
    memcpy(&number, &value, sizeof number);
    return pile_add(&in->stack, PyLong_FromLongLong(number));
}

/* A ninth byte is there for the sign of what fills eight. */
outcome
push_long(reader *in)
{
    uint64_t bytes = 0;
    if (!take_number(in, 1, &bytes)) {
        return REFUSED;
    }
    if (bytes <= sizeof bytes) {
        return push_signed(in, (size_t)bytes);
    }
    if (bytes > sizeof bytes + 1) {
        return refuse(in, LONG_NUMBER);
    }
    if (!has_bytes(in, bytes)) {
        return refuse(in, PICKLE_CUT_OFF);
    }
    if (in->at[sizeof bytes]) {
        return refuse(in, LONG_NUMBER);
    }
    outcome now = push_unsigned(in, sizeof bytes);
    in->at++;
    return now;
}

outcome
push_float(reader *in)
{
    if (!has_bytes(in, sizeof(double))) {
        return refuse(in, PICKLE_CUT_OFF);
    }
    uint64_t bits = 0;
    for (size_t index = 0; index < sizeof bits; index++) {
        bits = bits << 8 | in->at[index];
    }
    in->at += sizeof bits;
    double value = 0;
    memcpy(&value, &bits, sizeof value);
    return pile_add(&in->stack, PyFloat_FromDouble(value));
}

outcome
push_text(reader *in, size_t length_bytes)
{
    uint64_t length = 0;
    if (!take_number(in, length_bytes, &length) || !has_bytes(in, length)) {
        return refuse(in, PICKLE_CUT_OFF);
    }
    const char *bytes = (const char *)in->at;
    PyObject *text = PyUnicode_DecodeUTF8(bytes, (Py_ssize_t)length, "surrogatepass");
    in->at += length;
    if (!text && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        return refuse(in, "not a valid pickle: a text is not UTF-8");
    }
    if (text && in->events && length <= LONGEST_SHARED_TEXT) {
        PyObject *same = event_tables_same_text(in->events, text);
        Py_XINCREF(same);
        Py_DECREF(text);
        text = same;
    }
    return pile_add(&in->stack, text);
}

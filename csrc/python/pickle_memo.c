/* What a pickle stores by numbers, to name it again. */
#include "pickle_reader.h"

#include <limits.h>

/* Bytes behind the code of an instruction; for texts and long numbers, those of their length. */
static const unsigned char ARGUMENT_BYTES[1 << 8] = {
    ['h'] = 1, ['j'] = 4, ['q'] = 1,  ['r'] = 4,  ['K'] = 1,  ['M'] = 2,  ['J'] = 4,
    ['G'] = 8, ['X'] = 4, [0x80] = 1, [0x8a] = 1, [0x8c] = 1, [0x95] = 8,
};

/* Code that is not known is passed over here, and refused when it is run. */
bool
find_recalled(reader *in)
{
    /* Each takes a byte of the file at least, and a part, for good. */
    uint64_t bytes = (uint64_t)(in->end - in->at);
    in->recallable_count = in->parts_left < bytes ? in->parts_left : bytes;
    in->recalled = PyMem_Calloc(in->recallable_count / CHAR_BIT + 1, 1);
    if (!in->recalled) {
        PyErr_NoMemory();
        return false;
    }
    reader over = *in;
    for (uint64_t count = 1; over.at < over.end; count++) {
        unsigned char code = *over.at++;
        uint64_t number = 0;
        if (count % INSTRUCTIONS_PER_CHECK == 0 && PyErr_CheckSignals()) {
            return false;
        }
        if (!take_number(&over, ARGUMENT_BYTES[code], &number)) {
            break;
        }
        if ((code == 'h' || code == 'j') && number < in->recallable_count) {
            in->recalled[number / CHAR_BIT] |= (unsigned char)(1U << number % CHAR_BIT);
        }
        if (code == 0x8a || code == 0x8c || code == 'X') {
            if (!has_bytes(&over, number)) {
                break;
            }
            over.at += number;
        }
    }
    return true;
}

static bool
is_recalled(const reader *in, uint64_t number)
{
    return number < in->recallable_count &&
           in->recalled[number / CHAR_BIT] >> number % CHAR_BIT & 1;
}

/* Numbers without gaps: others nobody writes, and they would ask for any amount of memory. */
outcome
remember(reader *in, uint64_t number)
{
    PyObject *value = top_of(in);
    if (!value) {
        return refuse(in, PICKLE_NO_VALUE);
    }
    if (number > in->memo.count) {
        return refuse(in, "refused: the pickle leaves gaps between the values that it stores");
    }
    if (!is_recalled(in, number)) {
        value = Py_None;
    }
    Py_INCREF(value);
    if (number < in->memo.count) {
        PyObject *old = in->memo.items[number];
        in->memo.items[number] = value;
        Py_DECREF(old);
        return GO_ON;
    }
    if (!spend(in, 1)) {
        Py_DECREF(value);
        return REFUSED;
    }
    return pile_add(&in->memo, value);
}

outcome
remember_as(reader *in, size_t bytes)
{
    uint64_t number = 0;
    return take_number(in, bytes, &number) ? remember(in, number) : REFUSED;
}

outcome
recall(reader *in, size_t bytes)
{
    uint64_t number = 0;
    if (!take_number(in, bytes, &number)) {
        return REFUSED;
    }
    if (number >= in->memo.count) {
        return refuse(in, "not a valid pickle: it names a value that it has not stored");
    }
    return pile_add(&in->stack, Py_NewRef(in->memo.items[number]));
}

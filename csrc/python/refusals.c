/* The account of a refusal as a dict, and the sentences about one. */
#include "core.h"
#include "torch/refusal.h"

#include <string.h>

static const number_field situation_fields[] = {
#define FIELD(name) NUMBER_FIELD(gml_situation, name),
    GML_SITUATION_NUMBERS(FIELD)
#undef FIELD
        {NULL, 0},
};

static PyObject *dict_of(const gml_situation *situation) {
    PyObject *dict = fields_dict(situation, situation_fields);
    if (dict && put(dict, "policy", PyUnicode_FromString(situation->policy)) < 0) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *torch_refusal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    const gml_situation *open = gml_refusal_open();
    if (!open) {
        Py_RETURN_NONE;
    }
    return dict_of(open);
}

static PyObject *last_refusal(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    return dict_of(gml_last_refusal());
}

static PyObject *torch_note_givers(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    gml_note_tried(GML_TRIED_GIVERS);
    Py_RETURN_NONE;
}

/* False with an exception. */
static bool read_situation(PyObject *dict, gml_situation *out) {
    *out = (gml_situation){0};
    for (const number_field *field = situation_fields; field->name; field++) {
        PyObject *value = PyDict_GetItemString(dict, field->name); /* borrowed */
        uint64_t number = 0;
        if (value && !read_number(value, field->name, &number)) {
            return false;
        }
        memcpy((char *)out + field->offset, &number, sizeof number);
    }
    PyObject *policy = PyDict_GetItemString(dict, "policy");
    const char *name = policy ? PyUnicode_AsUTF8AndSize(policy, NULL) : "";
    if (!name) {
        return false;
    }
    (void)snprintf(out->policy, sizeof out->policy, "%s", name);
    return true;
}

static PyObject *sentences_of(const gml_situation *situation) {
    PyObject *list = PyTuple_New(GML_SAY_COUNT);
    for (int which = 0; list && which < GML_SAY_COUNT; which++) {
        char text[GML_SAY_BYTES];
        gml_situation_say(situation, (gml_sentence)which, text, sizeof text);
        PyObject *sentence = PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
        if (!sentence || PyTuple_SetItem(list, which, sentence) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *tell_refusal(PyObject *Py_UNUSED(module), PyObject *dict) {
    gml_situation situation;
    if (!PyDict_Check(dict)) {
        PyErr_SetString(PyExc_TypeError, "the account of a refusal is a dict");
        return NULL;
    }
    if (!read_situation(dict, &situation)) {
        return NULL;
    }
    PyObject *sentences = sentences_of(&situation);
    return sentences
               ? Py_BuildValue("(sKN)", gml_case_name(gml_situation_case(&situation)),
                               (unsigned long long)gml_situation_others(&situation), sentences)
               : NULL;
}

PyMethodDef refusal_methods[] = {
    FUNCTION(torch_note_givers, METH_NOARGS, "()",
             "Note that elastic tensors are asked for memory, before this thread's request is\n"
             "refused."),
    FUNCTION(torch_refusal, METH_NOARGS, "()",
             "Return the account of the request of this thread that a lake below PyTorch refuses\n"
             "right now, by name, see tell_refusal(); None outside of one."),
    FUNCTION(last_refusal, METH_NOARGS, "()",
             "Return the account of this thread's last refusal; its size_bytes is 0 if there was\n"
             "none."),
    FUNCTION(
        tell_refusal, METH_O, "(account, /)",
        "Return the case that a refusal is, the bytes that others hold of the device, and the\n"
        "sentences about it: the verdict, what would have helped, the device, what is held,\n"
        "by whom else, and what was tried; \"\" for one without anything to say.\n\n"
        "account: numbers by name, 0 where one is missing, and `policy`, which is \"\" for\n"
        "PyTorch's own allocator. Raises ValueError for a number below 0 or above 2^64 - 1."),
    {NULL, NULL, 0, NULL},
};

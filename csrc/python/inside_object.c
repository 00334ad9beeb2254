/* The types Inside and Turn: the core keeps their entries, and ends them with the object at the
 * latest.
 *
 * Python delivers signals between its instructions, so none arrives between an entry and the block
 * of a `with`, or inside an exit: both are one call.
 */
#include "core.h"
#include "gmlake_torch.h"

/* Reads (number, takes_graphs, is_exclusive); false, with an exception, for anything else. */
static bool read_region(PyObject *parts, gml_region *out) {
    long number = 0;
    int takes_graphs = 0;
    int is_exclusive = 0;
    if (!PyTuple_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "a region is (number, takes_graphs, is_exclusive)");
        return false;
    }
    if (!PyArg_ParseTuple(parts, "lpp", &number, &takes_graphs, &is_exclusive)) {
        return false;
    }
    if (number < 0 || number > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "the number of a region must be from 0 to 2**31 - 1");
        return false;
    }
    out->number = (int)number;
    out->takes_graphs = takes_graphs != 0;
    out->is_exclusive = is_exclusive != 0;
    return true;
}

static PyObject *inside_enter(PyObject *self, PyObject *Py_UNUSED(unused)) {
    core_state *state = state_of(Py_TYPE(self));
    PyObject *parts = state ? PyObject_CallMethod(self, "region", NULL) : NULL;
    PyObject *everywhere = parts ? PyObject_GetAttrString(self, "is_everywhere") : NULL;
    int is_everywhere = everywhere ? PyObject_IsTrue(everywhere) : -1;
    gml_region region = {0};
    bool is_read = is_everywhere >= 0 && read_region(parts, &region);
    Py_XDECREF(parts);
    Py_XDECREF(everywhere);
    if (!is_read) {
        return NULL;
    }
    gml_status status = gml_torch_enter_region(region, is_everywhere != 0, self);
    return status == GML_OK ? Py_NewRef(self) : raise_status(state, status, NULL);
}

static PyObject *turn_enter(PyObject *self, PyObject *Py_UNUSED(unused)) {
    core_state *state = state_of(Py_TYPE(self));
    PyObject *number = state ? PyObject_CallMethod(self, "number", NULL) : NULL;
    unsigned long long turn = number ? PyLong_AsUnsignedLongLong(number) : 0;
    Py_XDECREF(number);
    if (!number || PyErr_Occurred()) {
        return NULL;
    }
    if (!turn) {
        PyErr_SetString(PyExc_ValueError, "the number of a turn must be above 0");
        return NULL;
    }
    gml_status status = gml_torch_enter_turn(turn, self);
    return status == GML_OK ? Py_NewRef(self) : raise_status(state, status, NULL);
}

static PyObject *inside_exit(PyObject *self, PyObject *Py_UNUSED(args)) {
    (void)gml_torch_leave_region(self);
    Py_RETURN_NONE;
}

static void inside_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    while (gml_torch_leave_region(self)) {
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* A type of which an entry and an exit are all there is. */
#define ENTERED_TYPE(lower, title, about, entering)                                                \
    static PyMethodDef lower##_methods[] = {                                                       \
        {"__enter__", lower##_enter, METH_NOARGS, "__enter__($self, /)\n--\n\n" entering},         \
        {"__exit__", inside_exit, METH_VARARGS,                                                    \
         "__exit__($self, /, *args)\n--\n\n"                                                       \
         "End this thread's last entry of this object, else its last of any thread."},             \
        {NULL, NULL, 0, NULL},                                                                     \
    };                                                                                             \
    static PyType_Slot lower##_slots[] = {                                                         \
        {Py_tp_doc, (void *)(about ", from an entry to its exit or the object's end, "             \
                                   "whichever comes first.")},                                     \
        {Py_tp_dealloc, (void *)inside_dealloc},                                                   \
        {Py_tp_methods, lower##_methods},                                                          \
        {0, NULL},                                                                                 \
    };                                                                                             \
    PyType_Spec lower##_spec = {                                                                   \
        .name = "gmlake._core." title,                                                             \
        .basicsize = sizeof(PyObject),                                                             \
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,                                         \
        .slots = lower##_slots,                                                                    \
    };

ENTERED_TYPE(inside, "Inside", "What threads are inside of",
             "Let this thread be served by the lakes of the region that region() returns; "
             "return self.\n\n"
             "region() is (number, takes_graphs, is_exclusive), see gml_region; number 0: the\n"
             "lakes of the devices. is_everywhere: also threads in no region of their own.")

ENTERED_TYPE(turn, "Turn", "Graphs that take turns",
             "Let the graphs that this thread begins to capture take turns with "
             "all of the number that number() returns; return self.")

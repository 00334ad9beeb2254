/* The type Inside: its entries are the core's, which ends them with the object at the latest.
 *
 * Python delivers signals between its instructions, so none comes between an entry and the block of
 * a `with`, nor into an exit: both are one call.
 */
#include "core.h"
#include "gmlake_torch.h"

static PyObject *
inside_enter(PyObject *self, PyObject *Py_UNUSED(unused))
{
    core_state *state = state_of(Py_TYPE(self));
    PyObject *number = state ? PyObject_CallMethod(self, "number", NULL) : NULL;
    PyObject *everywhere = number ? PyObject_GetAttrString(self, "is_everywhere") : NULL;
    long region = number ? PyLong_AsLong(number) : -1;
    int is_everywhere = everywhere ? PyObject_IsTrue(everywhere) : -1;
    Py_XDECREF(number);
    Py_XDECREF(everywhere);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (region < 0 || region > INT_MAX) {
        PyErr_SetString(PyExc_ValueError, "the number of a region must be from 0 to 2**31 - 1");
        return NULL;
    }
    gml_status status = gml_torch_enter_region((int)region, is_everywhere != 0, self);
    return status == GML_OK ? Py_NewRef(self) : raise_status(state, status, NULL);
}

static PyObject *
inside_exit(PyObject *self, PyObject *Py_UNUSED(args))
{
    (void)gml_torch_leave_region(self);
    Py_RETURN_NONE;
}

static void
inside_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    while (gml_torch_leave_region(self)) {
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

PyDoc_STRVAR(enter_doc,
             "__enter__($self, /)\n--\n\n"
             "Let this thread be served by the lakes of the region that number() says; "
             "return self.\n\n"
             "0: by those of the devices. Bit 0 takes the memory of graphs, too; bit 1\n"
             "lets each block lie in one chunk. is_everywhere: also threads that are in\n"
             "no region of their own.");
PyDoc_STRVAR(exit_doc, "__exit__($self, /, *args)\n--\n\n"
                       "End this thread's last entry of this object, else its last of any thread.");
PyDoc_STRVAR(inside_doc, "What threads are inside of, from an entry to its exit or the object's "
                         "end, whichever comes first.");

static PyMethodDef inside_methods[] = {
    {"__enter__", inside_enter, METH_NOARGS, enter_doc},
    {"__exit__", inside_exit, METH_VARARGS, exit_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot inside_slots[] = {
    {Py_tp_doc, (void *)inside_doc},
    {Py_tp_dealloc, (void *)inside_dealloc},
    {Py_tp_methods, inside_methods},
    {0, NULL},
};

PyType_Spec inside_spec = {
    .name = "gmlake._core.Inside",
    .basicsize = sizeof(PyObject),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = inside_slots,
};

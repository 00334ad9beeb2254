/* The functions by which processes share a device below PyTorch. */
#include "core.h"
#include "gmlake_torch.h"

static PyObject *torch_share(PyObject *module, PyObject *args) {
    int device, priority;
    const char *name;
    number_argument weight = {"weight", 0};
    if (!PyArg_ParseTuple(args, "isiO&:torch_share", &device, &name, &priority, convert_number,
                          &weight)) {
        return NULL;
    }
    if (weight.value > UINT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "weight must be below 2**32");
        return NULL;
    }
    char reason[REASON_BYTES] = "";
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_torch_share(device, name, priority, (uint32_t)weight.value, reason, sizeof reason);
    Py_END_ALLOW_THREADS
    if (status != GML_OK) {
        return raise_status(PyModule_GetState(module), status, reason);
    }
    Py_RETURN_NONE;
}

static PyObject *torch_unshare(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    Py_BEGIN_ALLOW_THREADS
    gml_torch_unshare();
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

/* Has other processes asked for memory, as `ask` does; whether they gave any. */
static PyObject *ask_others(PyObject *args, const char *format,
                            bool (*ask)(int device, uint64_t size_bytes)) {
    int device;
    number_argument size = {"size", 0};
    bool is_given;
    if (!PyArg_ParseTuple(args, format, &device, convert_number, &size)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    is_given = ask(device, size.value);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(is_given);
}

static bool ask_for_lake(int device, uint64_t size_bytes) {
    return gml_torch_ask_neighbours(device, size_bytes, true);
}

static PyObject *torch_ask_neighbours(PyObject *Py_UNUSED(module), PyObject *args) {
    return ask_others(args, "iO&:torch_ask_neighbours", ask_for_lake);
}

static PyObject *torch_make_room(PyObject *Py_UNUSED(module), PyObject *args) {
    return ask_others(args, "iO&:torch_make_room", gml_torch_make_room);
}

static PyObject *list_of(const gml_torch_neighbour *others, size_t count) {
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list && i < count; i++) {
        const gml_torch_neighbour *one = &others[i];
        PyObject *item =
            Py_BuildValue("(iiKKs)", one->process, (int)one->priority,
                          (unsigned long long)one->held_bytes, (unsigned long long)one->idle_bytes,
                          one->is_stopped  ? "stopped"
                          : one->is_silent ? "no answer"
                                           : "");
        if (!item || PyList_Append(list, item) != 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(item);
    }
    return list;
}

static PyObject *torch_neighbours(PyObject *Py_UNUSED(module), PyObject *args) {
    int device;
    gml_torch_neighbour others[GML_SHARE_PLACES];
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "i:torch_neighbours", &device)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    count = gml_torch_neighbours(device, others);
    Py_END_ALLOW_THREADS
    return list_of(others, count);
}

static PyObject *torch_look_at(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *name;
    gml_torch_neighbour others[GML_SHARE_PLACES];
    size_t count = 0;
    if (!PyArg_ParseTuple(args, "s:torch_look_at", &name)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    count = gml_torch_look_at(name, others);
    Py_END_ALLOW_THREADS
    return list_of(others, count);
}

static PyObject *torch_sharing(PyObject *Py_UNUSED(module), PyObject *args) {
    int device;
    gml_torch_shared shared;
    if (!PyArg_ParseTuple(args, "i:torch_sharing", &device)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    gml_torch_sharing(device, &shared);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("{s:O,s:K,s:K,s:K,s:K,s:s}", "is_shared",
                         shared.is_shared ? Py_True : Py_False, "given_bytes",
                         (unsigned long long)shared.given_bytes, "taken_bytes",
                         (unsigned long long)shared.taken_bytes, "handed_bytes",
                         (unsigned long long)shared.handed_bytes, "longest_ns",
                         (unsigned long long)shared.longest_ns, "why", shared.why);
}

/* ---- the table ------------------------------------------------------------------------------- */

PyDoc_STRVAR(share_doc,
             "torch_share(device, name, priority, weight, /)\n--\n\n"
             "Share a device with the processes of this user that share it by the same name.\n\n"
             "Raises ValueError for bad terms and UnsupportedError where it cannot begin.");
PyDoc_STRVAR(unshare_doc, "torch_unshare()\n--\n\n"
                          "Share no device any more.");
PyDoc_STRVAR(ask_neighbours_doc,
             "torch_ask_neighbours(device, size, /)\n--\n\n"
             "Ask the processes that share a device for what it lacks for `size` bytes of a\n"
             "lake, and return whether they gave any.");
PyDoc_STRVAR(make_room_doc,
             "torch_make_room(device, size, /)\n--\n\n"
             "Have the processes that share a device give `size` bytes, and return whether they\n"
             "gave any.");
PyDoc_STRVAR(sharing_doc, "torch_sharing(device, /)\n--\n\n"
                          "Return how a device is shared, see gml_torch_shared.");
PyDoc_STRVAR(neighbours_doc,
             "torch_neighbours(device, /)\n--\n\n"
             "Ask the processes that share a device what they have, see gml_torch_neighbour.");
PyDoc_STRVAR(look_at_doc,
             "torch_look_at(name, /)\n--\n\n"
             "Ask all processes that share a device by that name, see gml_torch_neighbour.");
PyMethodDef torch_sharing_methods[] = {
    {"torch_share", torch_share, METH_VARARGS, share_doc},
    {"torch_unshare", torch_unshare, METH_NOARGS, unshare_doc},
    {"torch_ask_neighbours", torch_ask_neighbours, METH_VARARGS, ask_neighbours_doc},
    {"torch_make_room", torch_make_room, METH_VARARGS, make_room_doc},
    {"torch_sharing", torch_sharing, METH_VARARGS, sharing_doc},
    {"torch_neighbours", torch_neighbours, METH_VARARGS, neighbours_doc},
    {"torch_look_at", torch_look_at, METH_VARARGS, look_at_doc},
    {NULL, NULL, 0, NULL},
};

/* The type Block: one live allocation, its address, and on `host` its bytes. It does not free the
 * memory when it is collected; it keeps its lake from being collected. */
#include "core.h"

#include <stddef.h>
#include <stdio.h>
#include <structmember.h>

static block_object *as_block(PyObject *self) {
    return (block_object *)self;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Describes the block as the lake holds it. */
static gml_status describe(block_object *self, gml_lake *lake, gml_address address,
                           uint64_t size_bytes, gml_stream stream) {
    self->info =
        (gml_block_info){.address = address, .requested_bytes = size_bytes, .stream = stream};
    if (address == 0) {
        return GML_OK;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_block(lake, address, &self->info);
    Py_END_ALLOW_THREADS
    return status;
}

static gml_status enrol(block_object *self) {
    lake_object *owner = self->owner;
    gml_status status = GML_OK;
    pthread_mutex_lock(&owner->guard);
    if (self->info.address != 0) {
        status = gml_map_insert(&owner->blocks, self->info.address, self);
    }
    self->is_live = status == GML_OK;
    pthread_mutex_unlock(&owner->guard);
    return status;
}

PyObject *block_new(lake_object *owner, gml_lake *lake, gml_address address, uint64_t size_bytes,
                    gml_stream stream) {
    PyTypeObject *type = owner->state->block_type;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    block_object *self = (block_object *)allocate(type, 0);
    if (!self) {
        Py_BEGIN_ALLOW_THREADS
        gml_lake_free(lake, address);
        Py_END_ALLOW_THREADS
        return NULL;
    }
    self->owner = (lake_object *)Py_NewRef((PyObject *)owner);
    gml_status status = describe(self, lake, address, size_bytes, stream);
    if (status == GML_OK) {
        status = enrol(self);
    }
    if (status == GML_OK) {
        return (PyObject *)self;
    }
    /* An unknown address means that another thread has freed it by number in the meantime; a block
     * there now must stay. */
    if (status != GML_UNKNOWN_ADDRESS) {
        Py_BEGIN_ALLOW_THREADS
        gml_lake_free(lake, address);
        Py_END_ALLOW_THREADS
    }
    Py_DECREF(self);
    return raise_status(owner->state, status, NULL);
}

/* Takes the object out of the lake's table. pre: owner->guard is held. */
static void forget_locked(block_object *self) {
    gml_map *blocks = &self->owner->blocks;
    gml_address address = self->info.address;
    if (self->is_live && address != 0 && gml_map_find(blocks, address) == self) {
        (void)gml_map_take(blocks, address);
    }
    self->is_live = false;
}

retirement block_retire_locked(block_object *self) {
    if (!self->is_live) {
        return FREED_BEFORE;
    }
    if (self->exports > 0) {
        return BUFFER_IN_USE;
    }
    forget_locked(self);
    return RETIRED;
}

static void block_dealloc(PyObject *object) {
    block_object *self = as_block(object);
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    if (self->owner) {
        if (lake_lock(self->owner)) {
            forget_locked(self);
            lake_unlock(self->owner);
        }
        Py_CLEAR(self->owner);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static int block_traverse(PyObject *object, visitproc visit, void *arg) {
    Py_VISIT(as_block(object)->owner);
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static bool is_live(block_object *self) {
    bool result = false;
    if (lake_lock(self->owner)) {
        result = self->is_live && self->owner->lake;
        lake_unlock(self->owner);
    }
    return result;
}

/* ---- values ---------------------------------------------------------------------------------- */

static PyObject *block_index(PyObject *object) {
    if (!is_live(as_block(object))) {
        PyErr_SetString(PyExc_ValueError, "the block was freed, or its lake is closed");
        return NULL;
    }
    return PyLong_FromUnsignedLongLong(as_block(object)->info.address);
}

static PyObject *block_repr(PyObject *object) {
    block_object *self = as_block(object);
    char text[160];
    const char *state = self->info.address ? gml_state_name(self->info.state) : "empty";
    snprintf(text, sizeof text, "<gmlake.Block at 0x%llx: %llu bytes on stream %llu, %s%s>",
             (unsigned long long)self->info.address, (unsigned long long)self->info.requested_bytes,
             (unsigned long long)self->info.stream, state, is_live(self) ? "" : ", freed");
    return PyUnicode_FromString(text);
}

static PyObject *get_state(PyObject *object, void *Py_UNUSED(closure)) {
    return PyUnicode_FromString(gml_state_name(as_block(object)->info.state));
}

static PyObject *get_is_live(PyObject *object, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(is_live(as_block(object)));
}

/* ---- the buffer protocol --------------------------------------------------------------------- */

/* Counts a buffer, which forbids freeing and closing; false with ValueError after the free. */
static bool add_export(block_object *self) {
    bool may = false;
    if (lake_lock(self->owner)) {
        may = self->is_live && self->owner->lake;
        self->exports += may;
        self->owner->exports += may;
        lake_unlock(self->owner);
    }
    if (!may) {
        PyErr_SetString(PyExc_ValueError, "the block was freed, or its lake is closed");
    }
    return may;
}

static void drop_export(block_object *self) {
    if (lake_lock(self->owner)) {
        self->exports--;
        self->owner->exports--;
        lake_unlock(self->owner);
    }
}

/* pre: an export is counted, which keeps the lake open. */
static int fill_buffer(block_object *self, Py_buffer *view, int flags) {
    static char nothing;
    void *bytes = &nothing;
    gml_lake *lake = self->owner->lake;
    if (self->info.address != 0) {
        gml_status status;
        Py_BEGIN_ALLOW_THREADS
        status = gml_lake_bytes(lake, self->info.address, &bytes);
        Py_END_ALLOW_THREADS
        if (status != GML_OK) {
            (void)raise_from_lake(self->owner->state, status, lake);
            return -1;
        }
    }
    return PyBuffer_FillInfo(view, (PyObject *)self, bytes, (Py_ssize_t)self->info.requested_bytes,
                             0, flags);
}

static int block_getbuffer(PyObject *object, Py_buffer *view, int flags) {
    view->obj = NULL;
    if (!add_export(as_block(object))) {
        return -1;
    }
    int result = fill_buffer(as_block(object), view, flags);
    if (result < 0) {
        drop_export(as_block(object));
    }
    return result;
}

static void block_releasebuffer(PyObject *object, Py_buffer *Py_UNUSED(view)) {
    drop_export(as_block(object));
}

/* ---- the type -------------------------------------------------------------------------------- */

#define MEMBER(type, name, at, text) {name, type, offsetof(block_object, at), READONLY, text}
static PyMemberDef block_members[] = {
    MEMBER(T_ULONGLONG, "address", info.address,
           "Where the block begins; 0 for a block of size 0."),
    MEMBER(T_ULONGLONG, "size", info.block_bytes,
           "Bytes held for it: rounded, plus slack not split off."),
    MEMBER(T_ULONGLONG, "requested_size", info.requested_bytes, "Bytes asked for."),
    MEMBER(T_ULONGLONG, "stream", info.stream, "The stream it was allocated for."),
    MEMBER(T_OBJECT_EX, "lake", owner, "The lake it belongs to."),
    {NULL, 0, 0, 0, NULL},
};
#undef MEMBER

static PyGetSetDef block_getset[] = {
    {"state", get_state, NULL, "How it was served: exact, split, stitch or grow.", NULL},
    {"is_live", get_is_live, NULL, "Whether neither it was freed nor its lake closed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(block_doc,
             "One live allocation, made by Lake.allocate.\n\n"
             "int() and operator.index() give the address, and raise ValueError after the free.\n"
             "On the host driver memoryview(block) is its writable memory; while a buffer is in\n"
             "use, the block cannot be freed. A Block that is collected does NOT free its memory.");

static PyType_Slot block_slots[] = {
    {Py_tp_doc, (void *)block_doc},
    {Py_tp_dealloc, block_dealloc},
    {Py_tp_traverse, block_traverse},
    {Py_tp_repr, block_repr},
    {Py_tp_members, block_members},
    {Py_tp_getset, block_getset},
    {Py_nb_index, block_index},
    {Py_nb_int, block_index},
    {Py_bf_getbuffer, block_getbuffer},
    {Py_bf_releasebuffer, block_releasebuffer},
    {0, NULL},
};

PyType_Spec block_spec = {
    .name = "gmlake._core.Block",
    .basicsize = sizeof(block_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE |
             Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = block_slots,
};

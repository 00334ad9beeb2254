/* The methods of Lake about sleeping. */
#include "core.h"
#include "gmlake_sleep.h"

#include <string.h>

static PyObject *
report_dict(const gml_sleep_report *report)
{
    PyObject *dict = PyDict_New();
    if (dict && (put_number(dict, "released_bytes", report->released_bytes) < 0 ||
                 put_number(dict, "kept_bytes", report->kept_bytes) < 0 ||
                 put_number(dict, "saved_bytes", report->saved_bytes) < 0 ||
                 put_number(dict, "time_ns", report->time_ns) < 0)) {
        Py_CLEAR(dict);
    }
    return dict;
}

static PyObject *
answer(lake_object *self, gml_lake *lake, gml_status status, const gml_sleep_report *report)
{
    PyObject *result =
        status == GML_OK ? report_dict(report) : raise_from_lake(self->state, status, lake);
    lake_leave(self);
    return result;
}

static bool
read_backup(const char *text, gml_backup *out)
{
    if (text && strcmp(text, "cpu") != 0 && strcmp(text, "disk") != 0) {
        PyErr_Format(PyExc_ValueError, "backup is \"cpu\", \"disk\" or None, not \"%.40s\"", text);
        return false;
    }
    *out = !text ? GML_BACKUP_NONE : text[0] == 'c' ? GML_BACKUP_HOST : GML_BACKUP_DISK;
    return true;
}

PyObject *
lake_sleep(PyObject *object, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"backup", "folder", NULL};
    lake_object *self = (lake_object *)object;
    const char *text = NULL, *folder = NULL;
    gml_backup backup = GML_BACKUP_NONE;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|zz:sleep", names, &text, &folder) ||
        !read_backup(text, &backup)) {
        return NULL;
    }
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_sleep_report report = {0};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_sleep(lake, backup, folder, &report);
    Py_END_ALLOW_THREADS
    return answer(self, lake, status, &report);
}

PyObject *
lake_wake(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_sleep_report report = {0};
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_wake(lake, &report);
    Py_END_ALLOW_THREADS
    return answer(self, lake, status, &report);
}

PyObject *
lake_saved(PyObject *object, PyObject *args)
{
    lake_object *self = (lake_object *)object;
    number_argument address = {"address", 0}, size = {"size", 0};
    if (!PyArg_ParseTuple(args, "O&O&:saved", convert_number, &address, convert_number, &size)) {
        return NULL;
    }
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    const void *found = NULL;
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_saved(lake, address.value, size.value, &found);
    Py_END_ALLOW_THREADS
    lake_leave(self);
    if (status != GML_OK) {
        Py_RETURN_NONE;
    }
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)found);
}

PyObject *
lake_forget_saved(PyObject *object, PyObject *Py_UNUSED(unused))
{
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    gml_status status;
    Py_BEGIN_ALLOW_THREADS
    status = gml_lake_forget_saved(lake);
    Py_END_ALLOW_THREADS
    PyObject *result = lake_answer(self, lake, status);
    lake_leave(self);
    return result;
}

PyObject *
lake_get_asleep(PyObject *object, void *Py_UNUSED(closure))
{
    lake_object *self = (lake_object *)object;
    gml_lake *lake = lake_enter(self);
    if (!lake) {
        return NULL;
    }
    bool is_asleep;
    Py_BEGIN_ALLOW_THREADS
    is_asleep = gml_lake_is_asleep(lake);
    Py_END_ALLOW_THREADS
    lake_leave(self);
    return PyBool_FromLong(is_asleep);
}

/* Arguments of the functions of the extension module `_loops`; a part of `native.c`.

   They are arrays, read through the buffer protocol, and numbers. Types, contiguity and sizes
   are checked here, numbers inside of arrays in the loops: wrong ones give an error, never an access
   to other memory. Python's lock is released meanwhile, so that loops run in several threads. */

typedef struct {
    Py_buffer view; /* `obj` is NULL for numbers and absent arrays */
    void *data;
    size_t size; /* elements */
    int type;
    int64_t integer;
    double real;
} Argument;

enum { MOST_ARGUMENTS = 16 };

static int type_of(const Py_buffer *view) {
    const char code = view->format ? view->format[0] : 0;
    if (!code || view->format[1]) return ABSENT; /* also other byte orders */
    if (code == 'f') return FLOAT32;
    if (code == 'd') return FLOAT64;
    if (strchr("?bilq", code))
        return view->itemsize == 1 ? INT8 : view->itemsize == 4 ? INT32 : INT64;
    return code == 'B' ? UINT8 : strchr("LQ", code) && view->itemsize == 8 ? UINT64 : ABSENT;
}

/* View an array of one of some types; returns 0, or -1 with an error of Python, or 1 if the type is
   another one or the data is not aligned. */
static int view_array(PyObject *array, int types, int is_writable, Argument *argument) {
    const int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (is_writable ? PyBUF_WRITABLE : 0);
    Py_buffer *view = &argument->view;
    if (PyObject_GetBuffer(array, view, flags)) return -1;
    argument->data = view->buf;
    argument->size = (size_t)view->len / (size_t)(view->itemsize ? view->itemsize : 1);
    argument->type = type_of(view);
    if ((argument->type & types) && (uintptr_t)view->buf % (size_t)view->itemsize == 0) return 0;
    PyBuffer_Release(view);
    return 1;
}

/* Kinds of arguments, arrays that are written to in upper case:
     f  float32 or float64       d  float64      c  a column of labels or weights, or None
     n  int32 or int64           i  int32        o  float64, or None
     l  int64                    u  uint64       m  a mask
     t  bytes of texts           z  an integer   r  a number */
static int types_of(int kind) {
    static const char kinds[] = "fcdoniulmt";
    static const int types[] = {
        FLOAT32 | FLOAT64, INT8 | FLOAT32 | FLOAT64, FLOAT64, FLOAT64, INT32 | INT64, INT32, UINT64,
        INT64, INT8, UINT8};
    return types[strchr(kinds, kind) - kinds];
}

static int take(PyObject *given, char letter, Argument *argument) {
    const int is_writable = letter < 'a', kind = letter | 32;
    memset(argument, 0, sizeof *argument);
    if (kind == 'z') argument->integer = PyLong_AsLongLong(given);
    if (kind == 'r') argument->real = PyFloat_AsDouble(given);
    if (kind == 'z' || kind == 'r') return !PyErr_Occurred();
    if ((kind == 'c' || kind == 'o') && given == Py_None) return 1;
    const int problem = view_array(given, types_of(kind), is_writable, argument);
    if (problem > 0) PyErr_SetString(PyExc_TypeError, "an array must have the type of its loop");
    return !problem;
}

/* What is wrong, or NULL. */
typedef const char *Loop(const Argument *arguments);
static const char *SIZES = "arrays must have sizes that agree";
static const char *OUTSIDE = "every number must lie inside the table";

static PyObject *call(Loop *loop, const char *kinds, PyObject *const *given, Py_ssize_t count) {
    Argument arguments[MOST_ARGUMENTS];
    const char *problem = NULL;
    Py_ssize_t taken = 0;
    if (count != (Py_ssize_t)strlen(kinds))
        return PyErr_Format(PyExc_TypeError, "arguments must be %zu", strlen(kinds));
    while (taken < count && take(given[taken], kinds[taken], arguments + taken)) taken++;
    const int is_complete = taken == count;
    if (is_complete) {
        Py_BEGIN_ALLOW_THREADS
        problem = loop(arguments);
        Py_END_ALLOW_THREADS
    }
    while (taken--)
        if (arguments[taken].view.obj) PyBuffer_Release(&arguments[taken].view);
    if (problem) PyErr_SetString(PyExc_ValueError, problem);
    if (problem || !is_complete) return NULL;
    Py_RETURN_NONE;
}

/* A function of the module, with the kinds of its arguments; what follows is its loop. */
#define METHOD(NAME, KINDS, ARGUMENTS)                                                             \
    static const char *NAME##_loop(const Argument *ARGUMENTS);                                     \
    static PyObject *NAME(PyObject *module, PyObject *const *given, Py_ssize_t count) {            \
        (void)module;                                                                              \
        return call(NAME##_loop, KINDS, given, count);                                             \
    }                                                                                              \
    static const char *NAME##_loop(const Argument *ARGUMENTS)

static int has_rows(const Argument *column, size_t rows) {
    return column->type == ABSENT || column->size == rows;
}

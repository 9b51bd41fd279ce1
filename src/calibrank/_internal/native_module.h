/* Functions of maps, and the extension module `_loops`; a part of `native.c`. */

/* Maps that were checked lately: bytes never change, and a reference keeps their address theirs. */
enum { CHECKED_MAPS = 8, LARGEST_CHECKED = 1 << 20 };
static PyObject *checked_maps[CHECKED_MAPS];

/* The map in bytes, or NULL with an error. */
static const double *map_in(PyObject *program) {
    static unsigned oldest;
    for (int number = 0; number < CHECKED_MAPS; number++)
        if (checked_maps[number] == program) return (const double *)PyBytes_AsString(program);
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(program, &bytes, &size)) return NULL;
    if (!is_map((const double *)bytes, (size_t)size)) {
        PyErr_SetString(PyExc_ValueError, "a program must be a packed map");
        return NULL;
    }
    if (size <= LARGEST_CHECKED) {
        PyObject *left = checked_maps[oldest];
        Py_INCREF(program);
        checked_maps[oldest] = program;
        oldest = (oldest + 1) % CHECKED_MAPS;
        Py_XDECREF(left);
    }
    return (const double *)bytes;
}

/* Scores up to which releasing Python's lock takes longer than it is worth. */
#define FEW_SCORES ((size_t)4096)

/* Fill an array with the probabilities of scores, which may be the same array. Returns 1 if NumPy
   has to compute them: their type is not float32 or float64, they are not contiguous, or one is
   invalid; -1 with an error of Python. */
static int fill_array(PyObject *scores, PyObject *result, PyObject *program) {
    Argument from, to;
    const double *map = map_in(program);
    if (!map) return -1;
    int problem = view_array(result, FLOAT32 | FLOAT64, 1, &to);
    if (!problem) {
        const int is_same = scores == result;
        if (!is_same) problem = view_array(scores, to.type, 0, &from);
        if (!problem) {
            const Argument *given = is_same ? &to : &from;
            PyThreadState *lock = to.size > FEW_SCORES ? PyEval_SaveThread() : NULL;
            problem = given->size != to.size ||
                      fill(given->data, to.data, to.size, to.type == FLOAT32, map);
            if (lock) PyEval_RestoreThread(lock);
            if (!is_same) PyBuffer_Release(&from.view);
        }
        PyBuffer_Release(&to.view);
    }
    /* Otherwise there is no buffer of this type, or it is read-only or not contiguous. */
    if (problem >= 0 || PyErr_ExceptionMatches(PyExc_MemoryError)) return problem;
    PyErr_Clear();
    return 1;
}

/* fill_probabilities(scores, result, program): whether the result was filled. */
static PyObject *fill_probabilities(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 3) return PyErr_Format(PyExc_TypeError, "arguments must be 3");
    const int problem = fill_array(given[0], given[1], given[2]);
    return problem < 0 ? NULL : PyBool_FromLong(!problem);
}

/* probability_of_score(score, program) */
static PyObject *probability_of_score(PyObject *module, PyObject *const *given, Py_ssize_t count) {
    (void)module;
    if (count != 2) return PyErr_Format(PyExc_TypeError, "arguments must be 2");
    double score = PyFloat_AsDouble(given[0]);
    if (score == -1 && PyErr_Occurred()) return NULL;
    const double *map = map_in(given[1]);
    if (!map) return NULL;
    if (!fill(&score, &score, 1, 0, map)) return PyFloat_FromDouble(score);
    PyErr_SetString(PyExc_ValueError, "a score must be valid");
    return NULL;
}

/* choose_processor(level): returns the level that is used, for tests. */
static PyObject *choose_processor_method(PyObject *module, PyObject *level) {
    (void)module;
    const long chosen = PyLong_AsLong(level);
    if (chosen == -1 && PyErr_Occurred()) return NULL;
    return PyLong_FromLong(choose_processor((int)chosen));
}

/* `native.py` compares this number with the sources and ignores a module built from other ones. */
static int start(PyObject *module) {
    choose_processor(2);
    prepare_deferred();
    return PyModule_AddIntConstant(module, "source_checksum", CALIBRANK_SOURCE_CHECKSUM);
}

#define FAST(NAME) {#NAME, (PyCFunction)(void (*)(void))NAME, METH_FASTCALL, NULL}

static PyMethodDef methods[] = {
    FAST(fill_probabilities),
    FAST(probability_of_score),
    FAST(pool),
    FAST(merge_blocks),
    FAST(pool_segments),
    FAST(count_segments),
    FAST(add_counts),
    FAST(add_cells),
    FAST(count_occupied),
    FAST(copy_occupied),
    FAST(mark_present),
    FAST(look_up),
    FAST(insert_texts),
    FAST(find_texts),
    FAST(segment_modes),
    FAST(segment_slopes),
    FAST(changed_loss),
    FAST(add_rows),
    FAST(train_bpr),
    FAST(catch_up_rows),
    FAST(step_rows),
    FAST(step_table),
    FAST(graph_rows),
    FAST(graph_scatter),
    FAST(count_better),
    {"choose_processor", choose_processor_method, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loops", NULL, 0, methods, slots, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }

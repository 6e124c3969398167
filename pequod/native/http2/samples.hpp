// What the time of hot calls goes to, by samples: the keys of calls that were at their end when so much time was over.
//
//     calls     get ann   get bob   scan ann ............   get bob         3 us   2 us   400 us   3 us
//     sample                                            ^                   (ann, read, 405 us, one command took 400
//     us)
//
// A call is the likelier to be one the longer it takes; so samples are shared out as the time is, and together they
// stand for all of it.
#pragma once

#include "../batch.hpp"

#include <Python.h>

#include <cstdint>

namespace pequod::http2 {

// How much time each sample stands for, at the least.
constexpr double SAMPLE_S = 0.0005;
// So many wait for Python; what comes then is forgotten. A quicker reader than one in four seconds misses nothing.
constexpr Py_ssize_t SAMPLES_MAX = 8192;

struct Samples {
    // The time that no sample stands for yet; with as much there is one.
    double due_s, every_s;
    // A list of tuples; null: there are none.
    PyObject* list;
    // Chooses a command of a batch.
    uint64_t random;

    bool is_due(double seconds) { return (due_s += seconds) >= every_s; }
};

// Note a sample of a call that took some seconds, with its message; false: an error is set.
bool sample_call(Samples* samples, Piece message, bool is_write, double seconds);

// Note a sample of a batch: one of its commands, each as likely as the others.
bool sample_batch(Samples* samples, const Batch* batch, double seconds);

}  // namespace pequod::http2

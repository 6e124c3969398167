// Numbers for things, which take half the room of pointers: a number is given to one thing until it is given back.
//
//     1 -> t|ann|    2 -> t|liz|    3 -> free, next free 5    4 -> t|bob|    5 -> free
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cstddef>
#include <cstdint>

namespace pequod {

template <typename Thing>
class Register {
  public:
    // The number of a thing that has none, above 0; 0: there is no memory, an error is set.
    uint32_t enter(Thing* thing) {
        if (!next_free_ && !grow()) return 0;
        const uint32_t number = next_free_;
        next_free_ = uint32_t(places_[number] >> 1);
        places_[number] = reinterpret_cast<uintptr_t>(thing);
        return number;
    }

    void leave(uint32_t number) {
        places_[number] = uintptr_t(next_free_) << 1 | 1;
        next_free_ = number;
    }

    Thing* at(uint32_t number) const { return reinterpret_cast<Thing*>(places_[number]); }

    // Where the thing of a number is looked up, to be fetched in advance.
    const void* place(uint32_t number) const { return places_ + number; }

  private:
    bool grow() {
        const size_t room = room_ ? 2 * room_ : 64;
        uintptr_t* grown =
            room <= UINT32_MAX ? static_cast<uintptr_t*>(PyMem_Realloc(places_, room * sizeof(uintptr_t))) : nullptr;
        if (!grown) {
            PyErr_NoMemory();
            return false;
        }
        // The lowest ones are given first: those that are made together stand together.
        for (size_t number = room_ ? room_ : 1; number < room; ++number) {
            grown[number] = (number + 1 < room ? uintptr_t(number + 1) << 1 : 0) | 1;
        }
        next_free_ = uint32_t(room_ ? room_ : 1);
        places_ = grown;
        room_ = room;
        return true;
    }

    // By their numbers: things, whose addresses are even; or twice the next free number and 1.
    uintptr_t* places_ = nullptr;
    size_t room_ = 0;
    // 0: there is none.
    uint32_t next_free_ = 0;
};

}  // namespace pequod

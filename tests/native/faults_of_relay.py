"""Faults in calls that another worker answers."""

from typing import Final

from tests.native.fault import Fault

FAULTS_OF_RELAY: Final = (
    Fault(
        "http2/owners.cpp",
        "    text[size - 1] = '|';  // as all groups end\n",
        "",
        "a group without a bar in the key has another owner than Python says",
    ),
    Fault(
        "http2/owners.cpp",
        "return group.start.size + group.has_bar < prefix.size ? Group{prefix, false} : group;",
        "return group;",
        "a placement makes groups that are shorter than its prefix",
    ),
    Fault(
        "http2/owners.cpp",
        "    const Py_ssize_t placement = placement_of(group);\n",
        "    const Py_ssize_t placement = placement_of(key);\n",
        "the reads of a group are shared by the placement of a key",
    ),
    Fault(
        "http2/owners.cpp",
        "while (place_of(at) != place) ++at;",
        "while (place_of(at) != 0) ++at;",
        "all other workers pass reads of a hot group on to one",
    ),
    Fault(
        "http2/relay.cpp",
        "if (!is_shared) return {relay.home, false};",
        "",
        "what the home alone has is read where it is not",
    ),
    Fault(
        "http2/relay.cpp",
        "if (at && reader != way.place) return NOWHERE;",
        "",
        "keys of several workers are read at one of them",
    ),
    Fault(
        "http2/relay.cpp",
        "const size_t head_size = way.is_shared ? turn.token.size : 0;",
        "const size_t head_size = turn.token.size;",
        "of the home's own keys, a state is asked for that it cannot know",
    ),
    Fault(
        "http2/relay.cpp",
        "if (deadline_s < 0) return true;",
        "",
        "a call whose client does not wait long is away when its time is over",
    ),
    Fault(
        "http2/relay.cpp",
        "if (relay.count >= relay.count_max || ",
        "if (",
        "more calls are on their way than there may be",
    ),
    Fault(
        "http2/relay_link.cpp",
        "if (!say(&link->out, STATE, &link->token, token) || ",
        "if (",
        "a connection does not see its own writes at another worker",
    ),
    Fault(
        "http2/relay_link.cpp",
        " || !say(&link->out, ROLE, &link->role, role)) return false;",
        ") return false;",
        "another worker does not know the role of a caller",
    ),
    Fault(
        "http2/relay_link.cpp",
        "stream->passed_s = at_s;",
        "",
        "what a call has waited at another worker is added to its deadline",
    ),
    Fault(
        "http2/relay_link.cpp",
        "link->is_silent = now - link->heard_s > silence && now - oldest.at_s > silence;",
        "link->is_silent = false;",
        "calls wait for a worker that keeps silent",
    ),
    Fault(
        "http2/relay_link.cpp",
        "const uint32_t place = head.id - link->base;",
        "const uint32_t place = 0;",
        "a reply goes to the call that has waited the longest",
    ),
    Fault(
        "http2/relay_end.cpp",
        "turn && self->reached == Known::YES && self->known == Known::YES && is_read(head.method);",
        "turn && self->reached == Known::YES && self->known == Known::YES;",
        "another worker can write without a handler",
    ),
    Fault(
        "http2/relay_end.cpp",
        "self->reached = content.size ? Known::UNKNOWN : Known::YES;",
        "self->reached = Known::YES;",
        "a state counts as reached that is not",
    ),
)

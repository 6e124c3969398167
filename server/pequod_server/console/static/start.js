// A first join, by clicks: declare it, write rows, and see what is computed from them as it comes.

import {ask, hasToken, reasonOf} from "./api.js";
import {card, h, head, note, show} from "./dom.js";
import {keyQuery} from "./format.js";
import {liveRows} from "./live_rows.js";
import {look} from "./statistics.js";

const JOIN = "t|<user>|<time:10>|<poster> =\n    check s|<user>|<poster>\n    copy p|<poster>|<time>";
const FOLLOWING = "s|ann|bob";
const POSTS_OF_BOB = "p|bob|";
const POSTS = ["Hello!", "There she blows.", "A fair wind today.", "Land ahead."];

export const start = {name: "start", title: "Start", enter};

function enter(root) {
  const waiting = card("Ann's timeline", note("Its rows are shown here, once step 1 is done."));
  const live = h("div", {class: "stack"}, waiting);
  let stop = () => {};
  let posts = 0;
  const watch = () => {
    stop();
    const shown = liveRows("prefix=t|ann|", {title: "Ann's timeline, live", isReversed: true});
    stop = shown.stop;
    show(live, shown.element);
  };

  const declare = step(
    "Declare what is computed",
    [
      note(
        "A timeline: for each user, the posts of those whom the user follows. s| says who follows whom, p| has posts.",
      ),
      h("pre", {}, JOIN),
    ],
    "Declare it",
    () => ask("/v1/joins/check", {method: "POST", body: {text: JOIN}}),
    async () => {
      await ask("/v1/joins", {method: "POST", body: {text: JOIN}});
      watch();
      return "The server has it. Ann's timeline is empty, for she follows nobody.";
    },
  );
  const follow = step(
    "Say whom Ann follows",
    [],
    "Ann follows Bob",
    () => mayWrite(FOLLOWING),
    async () => {
      await put(FOLLOWING, "1");
      return `${FOLLOWING} is written.`;
    },
  );
  const text = h("input", {"aria-label": "The post", value: POSTS[0], maxlength: 280});
  const post = step(
    "Write a post of Bob",
    [text],
    "Post it",
    () => mayWrite(POSTS_OF_BOB),
    async () => {
      const key = `${POSTS_OF_BOB}${String(Math.floor(Date.now() / 1000) + posts).padStart(10, "0")}`;
      await put(key, text.value);
      posts++;
      text.value = POSTS[posts % POSTS.length];
      return `${key} is written, and it is in the timeline: nobody wrote it there.`;
    },
  );

  const steps = h("ol", {class: "steps"}, declare, follow, post);
  const next = h(
    "p",
    {class: "note"},
    "Then look at ",
    h("a", {href: "#/keys?prefix=t|ann|"}, "its keys"),
    ", at ",
    h("a", {href: "#/joins"}, "the join"),
    ", or try a join of your own in the ",
    h("a", {href: "#/playground"}, "playground"),
    ".",
  );
  show(
    root,
    head(
      "A timeline in three clicks",
      "Rows that clients write on one side, rows that the server computes on the other.",
    ),
    h("div", {class: "grid"}, h("section", {class: "card stack"}, steps, next), live),
  );
  resume(declare, watch);
  return () => stop();
}

// Goes on where the server is already.
async function resume(declare, watch) {
  try {
    const {joins} = await ask("/v1/joins");
    if (
      joins.some((join) =>
        join.text.startsWith("t|<user>|<time:10>|<poster> = check s|<user>|<poster> copy p|<poster>|<time"),
      )
    ) {
      declare.classList.add("done");
      watch();
    }
  } catch {
    // The steps say what is wrong.
  }
}

async function put(key, value) {
  await ask(`/v1/keys/${keyQuery(key)}`, {method: "PUT", body: {value}});
}

// Fails where the reader's role may not write a key: to remove an empty range changes nothing, and takes the right to.
async function mayWrite(key) {
  const query = keyQuery(key);
  await ask(`/v1/range?first=${query}&last=${query}`, {method: "DELETE"});
}

// A step of the way: what it is about, and a button that does it and says what it did. `may` fails where the reader's
// role may not do it, and changes nothing.
function step(title, parts, action, may, act) {
  const said = h("div", {role: "status"});
  const button = h("button", {type: "button", onclick: run}, action);
  const line = h(
    "li",
    {},
    h("h3", {}, title),
    parts,
    h("div", {}, button),
    said,
  );
  async function run() {
    try {
      show(said, note(await act(), "good"));
      line.classList.add("done");
      look();
    } catch (error) {
      show(said, note(reasonOf(error), "bad"));
    }
  }
  async function judge() {
    try {
      await may();
    } catch (error) {
      if (!error.isDenied) return;
      button.disabled = true;
      show(said, note(reasonOf(error), "warn"));
    }
  }
  if (hasToken()) judge();
  return line;
}

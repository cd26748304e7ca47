// The page as a whole: the state, and what follows from it.

let state = START;
let model = null;
let entries = null; // the list on show
let seenKeys = new Set();
let asked = {}; // what each part of the page was last filled for
let focusPosition = null; // where in the list the focus was when its row went away

const panels = {
  history: new Panel(byId("history")),
  results: new Panel(byId("results"), 10),
  card: new Panel(byId("card"), 8),
};
const note = make("p", { class: "note", role: "note" });
const ranked = new RankedList(chooseItem, { label: "Recommendations", controls: "detail", onpick: pick });
const detail = new Detail({
  choose: chooseItem,
  close: closeDetail,
  pick,
  canPick: (item) => model.can.fold_in && !item.cold
    && !(state.view === "new-user" && state.picks.includes(keyOf(item.item_id))),
});

/** Goes to a changed state; a step that Back should undo becomes an entry of the browser's history. */
function go(changes, { step = false } = {}) {
  state = { ...state, ...changes };
  history[step ? "pushState" : "replaceState"](null, "", writeRoute(state));
  update();
}

/** Returns who asks in the present state, or null. */
function asker() {
  if (state.view === "new-user") return model.can.fold_in ? newUser(state.picks) : null;
  return state.user === null ? null : knownUser(state.user);
}

/** Brings every part of the page in line with the state; what is already right is left alone. */
function update() {
  if (!model) return;
  showFrame();
  if (state.view === "model") return;
  const who = writeJson(state.view === "user" ? ["user", state.user] : ["new-user", state.picks]);
  const list = writeJson([who, state.length, state.seen, state.where]);
  const item = state.item === null ? null : writeJson([who, state.item]);
  const was = asked;
  asked = { who, list, item };
  if (who !== was.who) showWho();
  if (list !== was.list) loadList();
  if (item !== was.item) loadDetail();
}

function showFrame() {
  const views = { user: "to-user", "new-user": "to-new-user", model: "to-model" };
  for (const [view, id] of Object.entries(views)) {
    const link = byId(id);
    link.href = writeRoute({ ...state, view, item: state.view === view ? state.item : null });
    if (view === state.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  byId("lists").hidden = state.view === "model";
  byId("card").hidden = state.view !== "model";
  byId("user-pane").hidden = state.view !== "user";
  byId("new-user-pane").hidden = state.view !== "new-user";
  byId("item-field").hidden = !model.can.fold_in;
  byId("controls").hidden = asker() === null;
  const lengths = [...new Set([...LENGTHS, state.length])].sort((a, b) => a - b);
  byId("length").replaceChildren(...lengths.map((length) =>
    make("option", { selected: length === state.length }, String(length))));
  byId("include-seen").checked = state.seen;
  showFilter();
  const name = { user: state.user, "new-user": "new user", model: "the model" }[state.view];
  document.title = name ? `${name} · rankformer` : "rankformer";
}

/** Shows the filter where the run has attributes, or the address has an expression. */
function showFilter() {
  const names = Object.keys(model.attributes ?? {});
  byId("filter").hidden = asker() === null || !(names.length || state.where);
  if (document.activeElement !== byId("where")) byId("where").value = state.where;
  byId("where-clear").hidden = !state.where;
  byId("where-help").textContent = names.length
    ? `Compare ${names.slice(0, 30).join(", ")}; join comparisons by and, or, not.` : "";
}

/** Shows whose list it is: the history of a user, or the picks of a new one. */
function showWho() {
  const someone = asker();
  byId("results-heading").replaceChildren("Recommended", ...(someone ? [" for ", make("bdi", {}, someone.name)] : []));
  if (state.view === "new-user") return showPicks();
  seenKeys = new Set();
  if (!someone) return panels.history.fill();
  return panels.history.load(async (signal) => {
    try {
      return await someone.history(signal);
    } catch (error) {
      if (error.status === 404) return null; // the list says so already
      throw error;
    }
  }, showHistory);
}

function showHistory(answer) {
  if (!answer) return panels.history.fill();
  seenKeys = new Set(answer.items.map((item) => keyOf(item.item_id)));
  if (entries && state.seen) showList();
  if (!answer.items.length) return panels.history.fill(emptyBox("No history", "The model was given no interaction of this user."));
  const shown = SINGLE.matches ? 3 : 12;
  const [list, ...more] = itemList(answer.items, { onchoose: chooseItem, shown, label: "History" });
  const got = answer.items.length;
  const cut = answer.count > got && `The first ${count(got)} of ${count(answer.count)}.`;
  return panels.history.fill(
    make("div", { class: "section-head" },
      make("h2", {}, "History"),
      make("p", { class: "quiet" }, counted(answer.count, "item"))),
    list, ...more, cut && make("p", { class: "quiet" }, cut),
    model.can.fold_in && make("p", { class: "actions" }, button("Copy to the new user", () =>
      go({ view: "new-user", picks: [...seenKeys], item: null }, { step: true }))));
}

function showPicks() {
  seenKeys = new Set(state.picks);
  const body = byId("picks");
  if (!model.can.fold_in) return body.replaceChildren();
  if (!state.picks.length) {
    return body.replaceChildren(emptyBox("Nobody yet",
      "Search for items above, or press + beside an item of the list. The list follows at once."));
  }
  const shown = SINGLE.matches ? 6 : 30;
  const options = { onchoose: chooseItem, onremove: drop, shown, label: "Picked items" };
  const [list, ...more] = itemList(state.picks.map(itemOf), options);
  return body.replaceChildren(
    make("div", { class: "section-head" },
      make("h2", {}, "Picked"),
      make("p", { class: "quiet" }, counted(state.picks.length, "item"), " · ", button("Clear", () => {
        go({ picks: [] });
        byId("item-input").focus();
      }, { class: "link" }))),
    list, ...more);
}

function loadList() {
  const someone = asker();
  if (someone) {
    const keep = state.view === "new-user" && entries !== null;
    return panels.results.load((signal) => someone.list(state, signal), (answer) => {
      if (state.view === "new-user") showPicks(); // titles may have come with the answer
      showList(answer);
      announce(`${counted(answer.items.length, "recommendation")} for ${someone.name}`);
    }, { keep });
  }
  entries = null;
  if (state.view === "new-user") {
    return panels.results.fill(emptyBox("Not something this model can do",
      `${model.model} has no rule for somebody outside its training data. Choose a user of the log instead.`));
  }
  return panels.results.load((signal) => searchUsers("", signal, 6), showWelcome);
}

function showWelcome(users) {
  panels.results.fill(emptyBox("Choose a user to begin",
    `This model knows ${counted(model.users, "user")} and ${counted(model.items, "item")}. `
    + "Find one by id, or start with one of these.",
    make("p", { class: "actions" }, users.map(({ user_id: id }) =>
      button(make("bdi", {}, String(id)), () => chooseUser(String(id)))))));
}

/** Shows an answer, or the last one again. */
function showList(answer = null) {
  const compare = answer !== null && state.view === "new-user" && entries !== null;
  const focused = document.activeElement;
  if (answer) {
    entries = answer.items;
    showNote(answer);
  }
  ranked.show(entries, { seen: seenKeys, compare, pickable: state.view === "new-user" });
  if (entries.length) panels.results.fill(!note.hidden && note, ranked.element);
  else panels.results.fill(emptyBox("Nothing left to recommend",
    state.where ? "No item that is left meets the filter."
      : state.seen ? "" : "Every item has been seen. “Include seen” brings them back."));
  placeDetail();
  if (detail.element.contains(focused)) focused.focus();
  if (focusPosition !== null && document.activeElement === document.body) ranked.focus(focusPosition, ".pick");
  focusPosition = null;
}

function showNote({ fallback = null, unknown_items: unknown = [], left_out: without = [] }) {
  const popular = state.view === "user" ? "The model was fitted on no interaction of this user"
    : state.picks.length ? "Nothing that was picked is known to the model" : "Nothing picked yet";
  const words = [
    fallback && `${popular}: these are the most popular items.`,
    unknown.length > 0 && `Unknown to the model and skipped: ${unknown.map(String).join(", ")}.`,
    without.length > 0 && `Without ${without.join(", ")}, which cannot score new users.`,
  ].filter(Boolean);
  note.textContent = words.join(" ");
  note.hidden = !words.length;
}

function loadDetail() {
  if (state.item !== null) {
    const someone = asker();
    const key = state.item;
    const nothing = state.view === "new-user" && !state.picks.length;
    const unable = !model.can.explain
      ? `The scores of ${model.model} are not a sum over a user’s history, so there are no reasons to give.`
      : !someone ? "Choose a user to see reasons."
      : nothing ? "Pick some items first: reasons come from a history."
      : itemOf(key).cold ? "Nobody has this item yet. Its score comes from items with similar attributes." : null;
    detail.show(itemOf(key), {
      eyebrow: someone ? `For ${someone.name}` : "",
      explain: unable ? null : (signal) => someone.explain(key, signal),
      unable,
      can: model.can,
    });
  }
  placeDetail();
}

/** Puts the details beside the list, or under the chosen row where there is no room beside it. */
function placeDetail() {
  const row = ranked.select(state.item);
  byId("detail-hint").hidden = state.item !== null;
  if (state.item === null) return detail.element.remove();
  detail.rename(itemOf(state.item));
  if (WIDE.matches) byId("detail-column").append(detail.element);
  else if (row?.isConnected) row.append(detail.element);
  else byId("results").before(detail.element);
}

function chooseUser(user) {
  go({ view: "user", user, item: null }, { step: true });
}

/** Shows the details of an item; the keyboard follows, so that Tab continues from there and Escape comes back. */
function chooseItem(item, event) {
  remember({ items: [item] });
  if (event?.currentTarget.getAttribute("aria-expanded") === "true") return closeDetail();
  const inside = detail.element.contains(document.activeElement);
  go({ item: keyOf(item.item_id) });
  if (event?.detail === 0 || inside) byId("detail-name").focus({ preventScroll: WIDE.matches });
  const behavior = REDUCED_MOTION.matches ? "auto" : "smooth";
  if (!WIDE.matches) detail.element.scrollIntoView({ block: "nearest", behavior });
  return undefined;
}

function closeDetail() {
  const row = ranked.rows.get(state.item);
  go({ item: null });
  (row?.querySelector(".row") ?? byId("results-heading")).focus({ preventScroll: true });
}

function pick(item) {
  const key = keyOf(item.item_id);
  remember({ items: [item] });
  focusPosition = [...ranked.rows.keys()].indexOf(key);
  const picks = state.picks.includes(key) ? state.picks : [...state.picks, key];
  go({ picks, view: "new-user" }, { step: state.view !== "new-user" });
  announce(`Added ${nameOf(item)}`);
}

function drop(item) {
  const position = state.picks.indexOf(keyOf(item.item_id));
  go({ picks: state.picks.filter((key) => key !== keyOf(item.item_id)) });
  const stops = byId("picks").querySelectorAll(".remove");
  (stops[Math.min(position, stops.length - 1)] ?? byId("item-input")).focus();
}

function loadModel() {
  return panels.card.load((signal) => service.ask("v1/model", { signal }), (answer) => {
    model = answer;
    panels.card.fill(...modelCard(model));
    byId("badge").replaceChildren(make("bdi", {}, [model.model, model.data?.name].filter(Boolean).join(" on ")));
    byId("badge").title = `model version ${model.model_version}`;
    asked = {};
    update();
  });
}

service.onNewVersion = () => {
  catalogue.clear();
  announce("The service has changed to another model");
  loadModel();
};

function listen() {
  makeFields({ chooseUser, pick });
  byId("length").addEventListener("change", (event) => go({ length: Number(event.target.value) }));
  byId("include-seen").addEventListener("change", (event) => go({ seen: event.target.checked }));
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    go({ where: byId("where").value.trim() });
  });
  byId("where-clear").addEventListener("click", () => {
    byId("where").value = "";
    go({ where: "" });
    byId("where").focus();
  });
  byId("skip").addEventListener("click", (event) => {
    event.preventDefault();
    (byId("lists").hidden ? byId("main") : byId("results-heading")).focus();
  });
  WIDE.addEventListener("change", () => model && placeDetail());
  addEventListener("hashchange", () => {
    state = readRoute(location.hash.slice(1), state);
    update();
  });
}

state = readRoute(location.hash.slice(1), START);
byId("card").hidden = false; // waiting, and a service that does not answer, are shown here
listen();
loadModel();

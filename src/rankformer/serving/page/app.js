// The page as a whole: the state, and what follows from it.

let state = START;
let model = null;
let other = null; // the model it is compared with
let entries = null; // the list on show
let otherAnswer = null; // of the other model: its list, or the error in place of it
let historyKeys = new Set();
let shownFor = null; // whose list is on show
let detailIsCold = false; // whether the item in detail was known to have no interactions
let asked = {}; // what each part of the page was last filled for
let focusPosition = null; // where in the list the focus was when its row went away

const panels = {
  history: new Panel(byId("history")),
  results: new Panel(byId("results"), 10),
  card: new Panel(byId("card"), 8),
};
const note = make("p", { class: "note", role: "note" });
const listOf = (base, label) => new RankedList((item, event) => chooseItem(item, event, base),
  { label, controls: "detail", onpick: pick });
const ranked = listOf(MAIN, "Recommendations");
const rankedBeside = listOf(OTHER, "Recommendations of the other model");
const detail = new Detail({
  choose: (item, event) => chooseItem(item, event, state.of),
  close: closeDetail,
  pick,
  canPick: (item) => model.can.fold_in && !item.cold && !added().includes(keyOf(item.item_id)),
  pickLabel: () => (addsClicks() ? "Add as a click" : "Add to the new user"),
});
const isComparing = () => state.compare && other !== null;

/** Whether items are added to the clicks of a known user, and not to the new one. */
const addsClicks = () => state.view === "user" && state.user !== null;
const added = () => (addsClicks() ? state.clicks : state.view === "new-user" ? state.picks : []);

/** Goes to a changed state; a step that Back should undo becomes an entry of the browser's history. */
function go(changes, { step = false } = {}) {
  state = { ...state, ...changes };
  history[step ? "pushState" : "replaceState"](null, "", writeRoute(state));
  update();
}

/** Returns who asks in the present state, or null. */
function asker() {
  if (state.view === "new-user") return model.can.fold_in ? newUser(state.picks) : null;
  return state.user === null ? null : knownUser(state.user, model.can.fold_in ? state.clicks : []);
}

/** Brings every part of the page in line with the state; what is already right is left alone. */
function update() {
  if (!model) return;
  showFrame();
  if (state.view === "model") return;
  const person = writeJson([state.view, state.view === "user" ? state.user : null]);
  const who = writeJson([person, added()]);
  const list = writeJson([who, state.length, state.seen, FILTERS.map((name) => state[name]), isComparing()]);
  const item = state.item === null ? null : writeJson([who, state.item, state.of]);
  const was = asked;
  asked = { person, who, list, item };
  if (person !== was.person) showWho();
  if (who !== was.who) showAdded();
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
  byId("compare-switch").hidden = other === null;
  byId("compare").checked = state.compare;
  byId("lists").classList.toggle("comparing", isComparing());
  byId("click-pane").hidden = !(addsClicks() && model.can.fold_in);
  showFilter();
  const name = { user: state.user, "new-user": "new user", model: "the model" }[state.view];
  document.title = name ? `${name} · rankformer` : "rankformer";
}

/** Shows the filters: an expression where the run has attributes or the address has one, the others on demand. */
function showFilter() {
  const names = Object.keys(model.attributes ?? {});
  byId("filter").hidden = asker() === null;
  byId("filter-where").hidden = !(names.length || state.where);
  byId("more-filters-label").textContent = byId("filter-where").hidden ? "Filters" : "More filters";
  for (const name of FILTERS) {
    if (document.activeElement !== byId(name)) byId(name).value = state[name];
  }
  if (FILTERS.some((name) => name !== "where" && state[name])) byId("more-filters").open = true;
  byId("where-clear").hidden = FILTERS.every((name) => !state[name]);
  byId("where-help").textContent = names.length
    ? `Compare ${names.slice(0, 30).join(", ")}; join comparisons by and, or, not.` : "";
}

/** Shows what was added: the clicks of a user, or the picks of a new one. */
function showAdded() {
  if (state.view === "new-user") return showPicks();
  const shown = SINGLE.matches ? 6 : 30;
  const [list, ...more] = itemList(state.clicks.map(itemOf),
    { onchoose: chooseItem, onremove: drop, shown, label: "Clicks of this moment" });
  return byId("clicks").replaceChildren(...(state.clicks.length ? [addedHead("Clicks of this moment"), list, ...more] : []));
}

/** Returns the heading above items that were added. */
const addedHead = (title) =>
  make("div", { class: "section-head" },
    make("h2", {}, title),
    make("p", { class: "quiet" }, counted(added().length, "item"), " · ", button("Clear", () => {
      go(addsClicks() ? { clicks: [] } : { picks: [] });
      byId(addsClicks() ? "click-input" : "item-input").focus();
    }, { class: "link" })));

/** Shows whose list it is: the history of a user, or the picks of a new one. */
function showWho() {
  const someone = asker();
  byId("results-heading").replaceChildren("Recommended", ...(someone ? [" for ", make("bdi", {}, someone.name)] : []));
  historyKeys = new Set();
  if (state.view === "new-user") return null;
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
  historyKeys = new Set(answer.items.map((item) => keyOf(item.item_id)));
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
      go({ view: "new-user", picks: [...new Set([...historyKeys, ...state.clicks])], item: null }, { step: true }))));
}

function showPicks() {
  const body = byId("picks");
  if (!model.can.fold_in) return body.replaceChildren();
  if (!state.picks.length) {
    return body.replaceChildren(emptyBox("Nobody yet",
      "Search for items above, or press + beside an item of the list. The list follows at once."));
  }
  const shown = SINGLE.matches ? 6 : 30;
  const options = { onchoose: chooseItem, onremove: drop, shown, label: "Picked items" };
  const [list, ...more] = itemList(state.picks.map(itemOf), options);
  return body.replaceChildren(addedHead("Picked"), list, ...more);
}

function loadList() {
  const someone = asker();
  if (someone) {
    const keep = asked.person === shownFor?.person && entries !== null;
    const beside = (signal) => someone.list(state, signal, OTHER).catch((problem) => {
      if (mayPass(problem) || signal.aborted) throw problem;
      return { items: [], problem };
    });
    const both = (signal) => Promise.all([someone.list(state, signal), isComparing() ? beside(signal) : null]);
    return panels.results.load(both, ([answer, second]) => {
      otherAnswer = second;
      showAdded(); // titles may have come with the answer
      showList(answer);
      if (state.item !== null && Boolean(itemOf(state.item).cold) !== detailIsCold) loadDetail();
      announce(`${counted(answer.items.length, "recommendation")} for ${someone.name}`);
    }, { keep });
  }
  entries = shownFor = null;
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
  // Marks say what new clicks or picks have changed, in a list of the same person.
  const follows = asked.person === shownFor?.person && (state.view === "new-user" || asked.who !== shownFor.who);
  const compare = answer !== null && entries !== null && follows;
  const focused = document.activeElement;
  if (answer) {
    entries = answer.items;
    note.textContent = notesOf(answer);
    note.hidden = !note.textContent;
    shownFor = { person: asked.person, who: asked.who };
  }
  const seen = new Set([...historyKeys, ...added()]);
  const beside = otherAnswer?.items;
  ranked.show(entries, { seen, compare, pickable: model.can.fold_in, beside });
  if (beside) {
    rankedBeside.show(beside, { seen, pickable: model.can.fold_in, beside: entries });
    panels.results.fill(
      make("p", { class: "note difference", role: "note" }, otherAnswer.problem ? "" : differenceOf(entries, beside)),
      make("div", { class: "pair" },
        pairColumn(model, note.textContent, ranked, entries),
        pairColumn(other, notesOf(otherAnswer), rankedBeside, beside, otherAnswer.problem)));
  } else if (entries.length) panels.results.fill(!note.hidden && note, ranked.element);
  else panels.results.fill(emptyBox("Nothing left to recommend",
    FILTERS.some((name) => state[name]) ? "No item that is left meets the filter."
      : state.seen ? "" : "Every item has been seen. “Include seen” brings them back."));
  placeDetail();
  if (detail.element.contains(focused)) focused.focus();
  if (focusPosition !== null && document.activeElement === document.body) ranked.focus(focusPosition, ".pick");
  focusPosition = null;
}

/** Returns one of two lists with what it is of. */
function pairColumn({ model: name, data, model_version: version }, remarks, list, items, problem = null) {
  const title = [name, data?.name].filter(Boolean).join(" on ");
  const [heading, text] = problem ? wordsFor(problem) : ["Nothing to recommend", ""];
  return make("section", {},
    make("h2", { title: `model version ${version}` }, make("bdi", {}, title)),
    remarks && make("p", { class: "note", role: "note" }, remarks),
    problem || !items.length ? emptyBox(heading, text) : list.element);
}

/** Returns what has to be said about a list. */
function notesOf({ fallback = null, unknown_items: unknown = [], left_out: without = [] }) {
  const popular = state.view === "user" ? "The model was fitted on no interaction of this user"
    : state.picks.length ? "Nothing that was picked is known to the model" : "Nothing picked yet";
  const clicked = addsClicks() && state.clicks.length > 0 && !fallback;
  const words = [
    clicked && "With these clicks: scored by the whole history, as a new user who has it.",
    fallback && `${popular}: these are the most popular items.`,
    unknown.length > 0 && `Unknown to the model and skipped: ${unknown.map(String).join(", ")}.`,
    without.length > 0 && `Without ${without.join(", ")}, which cannot score new users.`,
  ];
  return words.filter(Boolean).join(" ");
}

function loadDetail() {
  if (state.item !== null) {
    const someone = asker();
    const key = state.item;
    detailIsCold = Boolean(itemOf(key).cold);
    const nothing = state.view === "new-user" && !state.picks.length;
    const base = isComparing() ? state.of : MAIN;
    const its = base === OTHER ? other : model;
    const unable = !its.can.explain
      ? `The scores of ${its.model} are not a sum over a user’s history, so there are no reasons to give.`
      : !someone ? "Choose a user to see reasons."
      : nothing ? "Pick some items first: reasons come from a history."
      : itemOf(key).cold ? "Nobody has this item yet. Its score comes from items with similar attributes." : null;
    detail.show(itemOf(key), {
      eyebrow: (someone ? `For ${someone.name}` : "") + (isComparing() ? `, by ${its.model}` : ""),
      explain: unable ? null : (signal) => someone.explain(key, signal, base),
      unable,
      can: its.can,
      base,
    });
  }
  placeDetail();
}

/** Puts the details beside the list, or under the chosen row where there is no room beside it. */
function placeDetail() {
  const isBeside = isComparing() && state.of === OTHER;
  const rows = [ranked.select(isBeside ? null : state.item), rankedBeside.select(isBeside ? state.item : null)];
  const row = rows[isBeside ? 1 : 0];
  byId("detail-hint").hidden = state.item !== null;
  if (state.item === null) return detail.element.remove();
  detail.rename(itemOf(state.item));
  if (WIDE.matches && !isComparing()) byId("detail-column").append(detail.element);
  else if (row?.isConnected && !(SINGLE.matches && isComparing())) row.append(detail.element);
  else byId("results").before(detail.element);
}

function chooseUser(user) {
  go({ view: "user", user, clicks: [], item: null }, { step: true });
}

/** Shows the details of an item; the keyboard follows, so that Tab continues from there and Escape comes back. */
function chooseItem(item, event, of = MAIN) {
  remember({ items: [item] });
  if (event?.currentTarget.getAttribute("aria-expanded") === "true") return closeDetail();
  const inside = detail.element.contains(document.activeElement);
  go({ item: keyOf(item.item_id), of });
  if (event?.detail === 0 || inside) byId("detail-name").focus({ preventScroll: WIDE.matches });
  const behavior = REDUCED_MOTION.matches ? "auto" : "smooth";
  if (!WIDE.matches) detail.element.scrollIntoView({ block: "nearest", behavior });
  return undefined;
}

function closeDetail() {
  const row = (isComparing() && state.of === OTHER ? rankedBeside : ranked).rows.get(state.item);
  go({ item: null });
  (row?.querySelector(".row") ?? byId("results-heading")).focus({ preventScroll: true });
}

function pick(item) {
  const key = keyOf(item.item_id);
  remember({ items: [item] });
  focusPosition = [...ranked.rows.keys()].indexOf(key);
  const keys = added().includes(key) ? added() : [...(addsClicks() ? state.clicks : state.picks), key];
  if (addsClicks()) go({ clicks: keys });
  else go({ picks: keys, view: "new-user" }, { step: state.view !== "new-user" });
  announce(`Added ${nameOf(item)}`);
}

function drop(item) {
  const [name, list, field] = addsClicks() ? ["clicks", "clicks", "click-input"] : ["picks", "picks", "item-input"];
  const position = state[name].indexOf(keyOf(item.item_id));
  go({ [name]: state[name].filter((key) => key !== keyOf(item.item_id)) });
  const stops = byId(list).querySelectorAll(".remove");
  (stops[Math.min(position, stops.length - 1)] ?? byId(field)).focus();
}

function loadModel() {
  const both = async (signal) => {
    const first = await service.ask(`${MAIN}/model`, { signal });
    return [first, first.compared_version ? await service.ask(`${OTHER}/model`, { signal }) : null];
  };
  return panels.card.load(both, (answers) => {
    [model, other] = answers;
    panels.card.fill(...(other ? [comparisonSection(answers)] : []), ...modelCard(model),
      ...(other ? modelCard(other) : []));
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
  byId("compare").addEventListener("change", (event) => go({ compare: event.target.checked, of: MAIN }));
  byId("filter").addEventListener("submit", (event) => {
    event.preventDefault();
    go(Object.fromEntries(FILTERS.map((name) => [name, byId(name).value.trim()])));
  });
  byId("where-clear").addEventListener("click", () => {
    go(NO_FILTERS);
    (byId("filter-where").hidden ? byId("more-filters").firstElementChild : byId("where")).focus();
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

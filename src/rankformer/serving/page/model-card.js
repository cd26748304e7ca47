// The model card: what it was trained on, with which settings, and how well it does under which protocol.

/** Returns a value of the model card as a string. */
function cardText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.map(cardText).join(", ");
  if (typeof value === "number" && Number.isInteger(value)) return count(value);
  return String(value);
}

/** Returns a value as an element; a long fingerprint is cut short, with the whole of it as its title. */
function cardValue(value) {
  const text = cardText(value);
  const long = /^[0-9a-f]{24,}$/.test(text);
  return make("bdi", { title: long && text }, long ? `${text.slice(0, 12)}…` : text);
}

/** Returns [name, value] entries of a nested record, inner names joined to outer ones, empty values left out. */
function flatten(record, prefix = "") {
  return Object.entries(record ?? {}).flatMap(([name, value]) => {
    const full = prefix && name !== prefix ? `${prefix} ${name}` : name;
    if (value === null || value === "") return [];
    return typeof value === "object" && !Array.isArray(value) ? flatten(value, full) : [[full, value]];
  });
}

/** Returns a list of names and values. */
const facts = (entries) =>
  make("dl", { class: "facts" }, entries.map(([name, value]) =>
    make("div", {}, make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, cardValue(value)))));

/** Returns "16 November 2026", or the text as it is where it is no date. */
function dateText(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? String(text) : date.toLocaleDateString("en-GB", { dateStyle: "long" });
}

const tile = (name, value) => make("div", { class: "tile" }, make("dt", {}, name), make("dd", {}, value));

function metricsSection(model) {
  const metrics = Object.entries(model.metrics ?? {});
  if (!metrics.length) return emptyBox("No metrics", "The test part was not evaluated when this model was trained.");
  const warm = Object.entries(model.warm_metrics ?? {});
  return [
    make("dl", { class: "tiles" }, metrics.map(([name, value]) => tile(name, numberElement(value, 4)))),
    warm.length > 0 && make("p", { class: "quiet" },
      `Users with training interactions: ${warm.map(([name, value]) => `${name} ${decimal(value, 4)}`).join(", ")}.`),
    model.refit && make("p", { class: "quiet" },
      `Measured before the model was refitted on all ${count(model.refit.interactions)} interactions.`),
    make("h3", {}, "Measured under this protocol"),
    make("div", { class: "pairs" }, facts(flatten(model.protocol).filter(([name]) => !name.startsWith("versions")))),
  ];
}

function curveSection(model) {
  const points = (model.curve ?? []).filter((point) => Number.isFinite(point.value) && Number.isFinite(point.epoch));
  if (!points.length) return emptyBox("No learning curve", "This method was not validated while it learned.");
  const metric = model.curve_metric ?? "value";
  const last = points.at(-1);
  const seconds = Number.isFinite(last.seconds) ? ` in ${decimal(last.seconds, 1)} s` : "";
  return make("figure", {},
    curveFigure(points, metric),
    make("figcaption", {}, `${metric} on the validation part, measured ${counted(points.length, "time")}${seconds}.`),
    curveTable(points, metric));
}

/** Returns the members of a blend as a table, heaviest first. */
function blendSection({ value, members, refused }) {
  const row = ({ label, weight, alone, without, seconds }) => make("tr", {}, make("th", { scope: "row" }, label),
    [[weight, 2], [alone, 4], [without, 4], [seconds, 1]].map(([number, digits]) =>
      make("td", {}, numberElement(number, digits))));
  return make("section", {}, make("h2", {}, "Members of the blend"),
    make("div", { class: "values" }, make("table", {},
      make("thead", {}, make("tr", {}, ["member", "weight", "alone", "blend without it", "seconds"].map((name) =>
        make("th", { scope: "col" }, name)))),
      make("tbody", {}, members.map(row)))),
    make("p", { class: "quiet" }, `On the validation part; the blend: ${decimal(value, 4)}.`),
    Object.entries(refused).map(([name, reason]) => make("p", { class: "quiet" }, `Left out: ${name} (${reason}).`)));
}

/** Returns two models side by side: what they are, and their metrics where both were measured alike. */
function comparisonSection(models) {
  const [first, second] = models;
  const alike = ["split_hash", "mask"].every((name) => first.protocol?.[name] === second.protocol?.[name]);
  const row = (name, values, difference = "") => make("tr", {}, make("th", { scope: "row" }, name),
    [...values, difference].map((value) => make("td", {}, value)));
  const metrics = Object.keys(first.metrics ?? {}).filter((name) => name in (second.metrics ?? {})).map((name) => {
    const values = models.map((model) => model.metrics[name]);
    return row(name, values.map((value) => numberElement(value, 4)),
      alike && numberElement(values[1] - values[0], 4, true));
  });
  return make("section", {}, make("h2", {}, "Side by side"),
    make("div", { class: "values" }, make("table", {},
      make("thead", {}, make("tr", {}, ["", ...models.map((model) => make("bdi", {}, String(model.model))), "difference"]
        .map((name) => make("th", { scope: "col" }, name)))),
      make("tbody", {},
        row("data", models.map((model) => make("bdi", {}, String(model.data?.name ?? "–")))),
        row("version", models.map((model) => model.model_version)),
        row("trained", models.map((model) => dateText(model.created))),
        ["users", "items", "pairs"].map((name) => row(name === "pairs" ? "interactions" : name,
          models.map((model) => count(model[name])))),
        metrics))),
    metrics.length > 0 && !alike && make("p", { class: "quiet" },
      "The two were not measured on the same test part: their metrics cannot be compared."));
}

/** Returns the whole model card as elements. */
function modelCard(model) {
  const name = model.data?.name ?? model.data?.history ?? "";
  const ability = (can, words) => make("li", { class: can ? "yes" : "no" },
    make("span", { "aria-hidden": "true" }, can ? "✓ " : "✕ "), can ? words : `no ${words}`);
  const made = [model.created && `Trained ${dateText(model.created)}`, `version ${model.model_version}`];
  const density = (100 * model.pairs) / (model.users * model.items);
  return [
    make("header", { class: "card-head" },
      make("h1", {},
        make("bdi", {}, String(model.model)),
        name && [make("span", { class: "quiet" }, " on "), make("bdi", {}, String(name))]),
      make("p", { class: "quiet" }, made.filter(Boolean).join(" · "))),
    make("dl", { class: "tiles" },
      tile("users", count(model.users)),
      tile("items", count(model.items)),
      tile("training interactions", count(model.pairs)),
      tile("density", `${decimal(density, 2)} %`)),
    make("div", { class: "card-columns" },
      make("section", {}, make("h2", {}, "How well it ranks"), metricsSection(model)),
      make("section", {}, make("h2", {}, "How it learned"), curveSection(model))),
    model.blend && blendSection(model.blend),
    make("div", { class: "card-columns three" },
      make("section", {}, make("h2", {}, "Settings"), facts([["seed", model.seed], ...flatten(model.settings)])),
      make("section", {}, make("h2", {}, "Data"), facts(flatten(model.data))),
      make("section", {}, make("h2", {}, "Made with"), facts(flatten(model.versions)),
        make("h2", {}, "What it can do"),
        make("ul", { class: "abilities" },
          ability(model.can?.fold_in, "lists for new users"),
          ability(model.can?.explain, "reasons for a score"),
          ability(model.can?.similar, "similar items")))),
  ];
}

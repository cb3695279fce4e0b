// The gallery: filters, order, pages and the large view, over the data that stands in the page. What the data says is
// text and is only ever set as text.
(() => {
  const block = document.getElementById("data");
  if (!block) return;
  const data = JSON.parse(block.textContent);
  const [FOUND, ID, TRUE, PREDICTED, CONFIDENCE, SIZE, KIND, MAKER, ROUND, LINE, LEFT, NOTE, MORE, TILES, CHANGES] = Array(15).keys();
  const SVG = "http://www.w3.org/2000/svg";
  const at = (id) => document.getElementById(id);
  const list = at("cards"), large = at("large"), sheets = at("sheets");
  const many = (n) => `${n.toLocaleString("en")} ${data.what}${n === 1 ? "" : "s"}`;

  // What can be chosen: how a card answers, and what an answer is called.
  const sides = {
    true: [(card) => card[TRUE], (n) => data.names[n]],
    predicted: [(card) => card[PREDICTED], (n) => data.names[n]],
    by: [(card) => card[MAKER], (n) => data.makers[n]],
    round: [(card) => card[ROUND], (n) => `round ${n}`],
    kind: [(card) => card[KIND], (n) => `kind ${n + 1}`],
    verdict: [(card) => (card[TRUE] === card[PREDICTED] ? 1 : 0), (n) => (n ? "right" : "wrong")],
  };
  const orders = {
    found: (a, b) => a[FOUND] - b[FOUND],
    size: (a, b) => number(a[SIZE], Infinity) - number(b[SIZE], Infinity),
    "-size": (a, b) => number(b[SIZE], -Infinity) - number(a[SIZE], -Infinity),
    confidence: (a, b) => number(a[CONFIDENCE], 2) - number(b[CONFIDENCE], 2),
    "-confidence": (a, b) => number(b[CONFIDENCE], -1) - number(a[CONFIDENCE], -1),
    class: (a, b) => a[TRUE] - b[TRUE] || a[PREDICTED] - b[PREDICTED],
  };
  const number = (value, none) => (value === null ? none : value);
  const blank = () => ({ true: "", predicted: "", by: "", round: "", kind: "", verdict: "", shrunk: "", find: "", sort: "", per: String(data.page), page: "1", open: "" });

  let state = blank(), chosen = [], shown = [];

  // ---- what is chosen -------------------------------------------------------------------------------------------
  const found = (card, text) =>
    !text || card[ID].startsWith(text) || data.names[card[TRUE]].toLowerCase().includes(text) || data.names[card[PREDICTED]].toLowerCase().includes(text);
  const passes = (card, but = "") => {
    for (const [name, [answer]] of Object.entries(sides)) {
      if (name !== but && state[name] !== "" && answer(card) !== Number(state[name])) return false;
    }
    return (!state.shrunk || card[LEFT] !== "") && found(card, state.find.trim().toLowerCase());
  };
  const choose = () => {
    chosen = data.cards.filter((card) => passes(card));
    if (Object.hasOwn(orders, state.sort)) chosen.sort(orders[state.sort]); // sorting keeps the order of equals
  };
  const counted = (name) => {
    const counts = new Map();
    for (const card of data.cards) {
      const answer = sides[name][0](card);
      counts.set(answer, (counts.get(answer) || 0) + (passes(card, name) ? 1 : 0));
    }
    return [...counts].sort((a, b) => a[0] - b[0]);
  };
  const offer = (name) => {
    const select = at(name), counts = counted(name);
    const all = counts.reduce((sum, [, count]) => sum + count, 0);
    const options = [new Option(`all (${all})`, "")];
    for (const [answer, count] of counts) options.push(new Option(`${sides[name][1](answer)} (${count})`, String(answer)));
    select.replaceChildren(...options);
    select.value = state[name];
    at(`${name}-label`)?.toggleAttribute("hidden", counts.length < 2);
  };

  // ---- what is drawn --------------------------------------------------------------------------------------------
  const made = (tag, className, ...inside) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    element.append(...inside);
    return element;
  };
  const sheet = (n) => { // the file of a sheet is asked for when the first of its pictures comes near
    const id = `sheet-${n}`;
    if (at(id)) return id;
    const [source, across, down] = data.sheets[n];
    const image = document.createElementNS(SVG, "image");
    image.id = id;
    image.setAttribute("width", across * (data.tile[0] + 2 * data.gutter));
    image.setAttribute("height", down * (data.tile[1] + 2 * data.gutter));
    image.setAttribute("href", source);
    sheets.append(image);
    return id;
  };
  const near = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      fill(target);
    }
  }, { rootMargin: "400px" });
  const fill = (place) => {
    for (const tile of place.querySelectorAll("svg[data-sheet]")) {
      const use = document.createElementNS(SVG, "use");
      use.setAttribute("href", `#${sheet(Number(tile.dataset.sheet))}`);
      tile.replaceChildren(use);
    }
  };
  const tile = (card, name, place) => {
    const [n, first, , factor, factorShrunk] = card[TILES], [width, height] = data.tile, across = data.sheets[n][1];
    const spot = first + place, svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("class", "tile");
    const x = (spot % across) * (width + 2 * data.gutter) + data.gutter, y = Math.floor(spot / across) * (height + 2 * data.gutter) + data.gutter;
    svg.setAttribute("viewBox", `${x} ${y} ${width} ${height}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", `${name} of ${data.what} ${card[ID]}`);
    svg.dataset.sheet = n;
    const by = name === "difference" ? ` ×${factor}` : name === "shrunk difference" ? ` ×${factorShrunk}` : "";
    return made("figure", "", svg, made("figcaption", "", name + by));
  };
  const pictures = (card, all) => {
    const box = made("span", "pictures");
    card[TILES][2].forEach((name, place) => {
      if (all || name !== "shrunk difference") box.append(tile(card, name, place));
    });
    return box;
  };
  const changes = (card) => {
    const table = made("table", "changes"), head = table.createTHead().insertRow();
    for (const name of ["entry", "seed", "case", "change"]) {
      const cell = made("th", "", name);
      cell.scope = "col";
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of card[CHANGES]) {
      const line = body.insertRow();
      for (const text of row) line.insertCell().append(text);
    }
    return table;
  };
  const says = (card) => {
    const right = card[TRUE] === card[PREDICTED], line = made("p", "says", made("strong", "", data.names[card[TRUE]]));
    if (right) line.append(", rightly");
    else line.append(" taken for ", made("strong", "wrong", data.names[card[PREDICTED]]));
    if (card[CONFIDENCE] !== null) line.append(`, ${(100 * card[CONFIDENCE]).toFixed(1)}\u202f% sure`);
    return line;
  };
  const origin = (card) => {
    const round = card[ROUND] ? `, round ${card[ROUND]}` : "";
    const kind = data.kinds.length ? ` · kind ${card[KIND] + 1}, ${data.kinds[card[KIND]]} alike` : "";
    return data.makers[card[MAKER]] + round + kind;
  };
  const again = (card) => {
    const copy = made("button", "copy", "Copy");
    copy.type = "button";
    copy.setAttribute("aria-label", `Copy the command that replays ${card[ID]}`);
    return made("p", "again", made("code", "", `${data.again} ${card[ID]}`), copy);
  };
  const texts = (card) => [card[LINE], origin(card), card[LEFT] && `shrunk: ${card[LEFT]}`, card[NOTE]].filter(Boolean).map((text) => made("p", "note", text));
  const drawn = (card) => {
    const open = made("button", "open");
    open.type = "button";
    const verdict = card[TRUE] === card[PREDICTED] ? "rightly" : `taken for ${data.names[card[PREDICTED]]}`;
    open.setAttribute("aria-label", `Open ${data.what} ${card[ID]}: ${data.names[card[TRUE]]}, ${verdict}`);
    open.append(data.tile ? pictures(card, false) : "Open");
    open.addEventListener("click", () => set({ open: String(card[FOUND]) }));
    const item = made("li", "card", open, ...(data.tile ? [] : [changes(card)]), says(card), ...texts(card), again(card));
    item.dataset.id = card[ID];
    item.dataset.found = card[FOUND];
    if (data.tile) near.observe(item);
    return item;
  };
  const each = () => (["30", "60", "120", "200"].includes(state.per) ? Number(state.per) : data.page);
  const draw = () => {
    const per = each(), pages = Math.max(1, Math.ceil(chosen.length / per));
    const page = Math.min(Math.max(Math.floor(Number(state.page)) || 1, 1), pages);
    state.page = String(page);
    shown = chosen.slice((page - 1) * per, page * per);
    near.disconnect();
    list.replaceChildren(...(shown.length ? shown.map(drawn) : [made("li", "none", `No ${data.what} is like that. Clear the filters to see all ${data.cards.length}.`)]));
    const first = (page - 1) * per + 1, some = chosen.length === data.cards.length ? "" : `, chosen of ${many(data.cards.length)} on this page`;
    const left = data.total > data.cards.length ? `; the run has ${data.total.toLocaleString("en")}` : "";
    at("count").textContent = shown.length ? `Showing ${first}–${first + shown.length - 1} of ${many(chosen.length)}${some}${left}` : `Showing none of ${many(data.cards.length)}${left}`;
    for (const end of ["", "-below"]) {
      at(`where${end}`).textContent = `Page ${page} of ${pages}`;
      at(`previous${end}`).disabled = page === 1;
      at(`next${end}`).disabled = page === pages;
    }
    at("pager-below").hidden = shown.length < 12;
  };

  // ---- the large view -------------------------------------------------------------------------------------------
  const button = (text, work, off = false) => {
    const one = made("button", "", text);
    one.type = "button";
    one.disabled = off;
    one.addEventListener("click", work);
    return one;
  };
  const spread = (card) => {
    const place = chosen.indexOf(card);
    const title = made("h3", "", `${data.what[0].toUpperCase()}${data.what.slice(1)} ${card[ID]}`);
    title.id = "large-title";
    const steps = made("div", "", button("Previous", () => step(-1), place <= 0), " ", button("Next", () => step(1), place < 0 || place === chosen.length - 1), " ", button("Close", () => large.close()));
    const facts = made("dl", "facts");
    data.more.forEach((name, i) => facts.append(made("div", "", made("dt", "", name), made("dd", "", card[MORE][i]))));
    large.replaceChildren(made("div", "bar", title, steps), data.tile ? pictures(card, true) : changes(card), says(card), ...texts(card), again(card), facts);
    fill(large);
  };
  const step = (by) => {
    const place = chosen.findIndex((card) => String(card[FOUND]) === state.open) + by;
    if (place < 0 || place >= chosen.length) return;
    const held = document.activeElement?.textContent;
    set({ open: String(chosen[place][FOUND]), page: String(Math.floor(place / each()) + 1) });
    ([...large.querySelectorAll("button")].find((each) => each.textContent === held && !each.disabled) || large.querySelector("button:not(:disabled)")).focus();
  };
  const look = () => {
    const card = state.open === "" ? undefined : data.cards.find((each) => String(each[FOUND]) === state.open);
    if (!card) {
      state.open = "";
      if (large.open) large.close();
      return;
    }
    spread(card);
    if (!large.open) large.showModal();
  };
  large.addEventListener("close", () => {
    const last = state.open;
    if (last === "") return;
    set({ open: "" });
    [...list.children].find((item) => item.dataset.found === last)?.querySelector(".open").focus();
  });

  // ---- state: what is chosen stands behind the # of the address ---------------------------------------------------
  const address = () => {
    const said = new URLSearchParams();
    for (const [name, value] of Object.entries(blank())) if (state[name] !== value) said.set(name, state[name]);
    const text = said.toString();
    history.replaceState(null, "", text ? `#/${text}` : location.hash.startsWith("#/") ? "#gallery" : location.hash || "#");
  };
  const read = () => {
    if (!location.hash.startsWith("#/")) return false;
    const said = new URLSearchParams(location.hash.slice(2));
    state = Object.fromEntries(Object.entries(blank()).map(([name, value]) => [name, said.get(name) ?? value]));
    return true;
  };
  const show = (again) => {
    if (again) {
      choose();
      for (const name of Object.keys(sides)) offer(name);
      for (const name of ["find", "sort", "per"]) at(name).value = state[name];
      at("shrunk").checked = state.shrunk !== "";
    }
    draw();
    look();
  };
  const set = (some) => {
    const before = state;
    state = { ...state, ...some };
    const moves = Object.keys(some).every((name) => name === "open" || name === "page");
    const turned = state.page !== before.page || !moves;
    if (turned) show(!moves); else look();
    address();
  };

  // ---- what people do ---------------------------------------------------------------------------------------------
  for (const name of [...Object.keys(sides), "sort", "per", "find"]) {
    at(name).addEventListener(name === "find" ? "input" : "change", (event) => set({ [name]: event.target.value, page: "1" }));
  }
  at("shrunk").addEventListener("change", (event) => set({ shrunk: event.target.checked ? "1" : "", page: "1" }));
  at("filters").addEventListener("submit", (event) => event.preventDefault());
  at("filters").addEventListener("reset", (event) => { event.preventDefault(); set({ ...blank(), per: state.per }); });
  const turn = (by, focus) => {
    set({ page: String(Number(state.page) + by) });
    if (focus) at("gallery").scrollIntoView();
  };
  for (const end of ["", "-below"]) {
    at(`previous${end}`).addEventListener("click", () => turn(-1, end));
    at(`next${end}`).addEventListener("click", () => turn(1, end));
  }
  const go = (by) => {
    const opens = [...list.querySelectorAll(".open")];
    const here = opens.findIndex((each) => each.closest(".card").contains(document.activeElement));
    const next = opens[here < 0 ? 0 : Math.min(Math.max(here + by, 0), opens.length - 1)];
    next?.focus();
  };
  const columns = () => getComputedStyle(list).gridTemplateColumns.split(" ").length;
  const keys = {
    j: () => go(1),
    k: () => go(-1),
    n: () => turn(1, true),
    p: () => turn(-1, true),
    "/": () => at("find").focus(),
  };
  const arrows = { ArrowRight: () => go(1), ArrowLeft: () => go(-1), ArrowDown: () => go(columns()), ArrowUp: () => go(-columns()) };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, pre")) return;
    let work = keys[event.key];
    if (large.open) work = { j: () => step(1), k: () => step(-1), ArrowRight: () => step(1), ArrowLeft: () => step(-1) }[event.key];
    else if (!work && list.contains(document.activeElement)) work = arrows[event.key];
    if (!work) return;
    event.preventDefault();
    work();
  });
  addEventListener("hashchange", () => { if (read()) show(true); });

  if (data.tile && data.tile[0] > 64) list.classList.add("fine");
  at("shrunk-label").hidden = !data.cards.some((card) => card[LEFT] !== "");
  at("filters").hidden = at("pager").hidden = false;
  const told = read();
  show(true);
  if (told && !large.open) at("gallery").scrollIntoView();
})();

// The host's own page: which subject, with which token; then uploads and messages of it.

import { byId, make } from "./dom.js";
import { Messages } from "./messages.js";
import { callApi } from "./upload.js";
import { Uploads } from "./uploads.js";

const TOKEN = "mts-token"; // the API's documentation uses the same
const HEALTH_EVERY = 15_000;
const url = location.origin;
const form = byId("where");
const messages = new Messages();
const uploads = new Uploads(() => messages.refresh());

form.addEventListener("submit", (event) => {
  event.preventDefault();
  open();
});
form.elements.subject.addEventListener("change", () => form.checkValidity() && open());

function open() {
  const where = { url, token: form.elements.token.value.trim(), subject: form.elements.subject.value.trim() };
  sessionStorage.setItem(TOKEN, where.token);
  history.replaceState(null, "", `#subject=${encodeURIComponent(where.subject)}`);
  document.title = `${where.subject} · MiniToolStream`;
  for (const node of document.querySelectorAll(".subject-name")) node.textContent = where.subject;
  byId("intro").hidden = true;
  byId("publish").hidden = byId("messages").hidden = false;
  uploads.open(where);
  messages.open(where);
  suggest(where);
}

/** Names of subjects, for the field's list; the page works without them too. */
async function suggest({ token }) {
  if (!token) return;
  const { subjects } = await callApi({ url, token, path: "/v1/subjects?limit=200" }).catch(() => ({ subjects: [] }));
  byId("subjects").replaceChildren(...subjects.map(({ subject }) => make("option", { value: subject })));
}

async function showHealth() {
  const pill = byId("health");
  const parts = await fetch("/readyz").then((answer) => answer.json()).then((ready) => ready.parts ?? {}, () => null);
  const down = Object.keys(parts ?? {}).filter((part) => parts[part] !== "ok");
  let text = down.length ? `down: ${down.join(", ").replaceAll("_", " ")}` : "ready";
  if (parts === null) text = "the host does not answer";
  pill.classList.toggle("bad", text !== "ready");
  pill.textContent = text;
  pill.hidden = false;
}

/** `#subject=orders`, and `#token=...` for a link that needs no typing: a fragment never leaves the browser. */
function begin() {
  const given = new URLSearchParams(location.hash.slice(1));
  form.elements.subject.value = given.get("subject") ?? "";
  form.elements.token.value = given.get("token") ?? sessionStorage.getItem(TOKEN) ?? "";
  if (given.has("token")) history.replaceState(null, "", location.pathname);
  if (form.checkValidity()) {
    open();
    return;
  }
  form.querySelector("input:invalid").focus();
  suggest({ token: form.elements.token.value });
}

begin();
showHealth();
setInterval(() => document.visibilityState === "visible" && showHealth(), HEALTH_EVERY);

// What /v1 says, with the token of this tab.

import { $, duration } from "./dom.js";

let token = sessionStorage.getItem("tierstate.token");

export function useToken(given) {
  token = given;
  sessionStorage.setItem("tierstate.token", token);
}

// How old what an answer says is, where no broker was asked for it.
export function aged(answer) {
  const age = answer.headers.get("x-view-age");
  return age === null ? "" : `No broker answers: the remote tier is shown as it was ${duration(Number(age))} ago.`;
}

export async function ask(path, accept = "application/json") {
  const headers = { accept };
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { headers });
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({ message: `the gateway answered ${answer.status}` }));
  if (answer.status === 401) $("login").hidden = false;
  throw Object.assign(new Error(said.message), { said });
}

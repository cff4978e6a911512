// What /v1 says, with the token of this tab.

import { $ } from "./dom.js";

let token = sessionStorage.getItem("tierstate.token");

export function useToken(given) {
  token = given;
  sessionStorage.setItem("tierstate.token", token);
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

// The only way to the server: POST, JSON, the token of the address as a header.
import { assign, h } from './dom.js';
const given = new URLSearchParams(location.hash.slice(1)).get('token');
if (given) { sessionStorage['dphist-token'] = given; history.replaceState(null, '', location.pathname); }

export class Refusal extends Error {
  constructor(error, status) {
    super(error.message || 'The studio did not understand this.');
    assign(this, { charged: false }, error, { status });
  }
}
let tellGone = () => {};
export const whenGone = callback => { tellGone = callback; };
const gone = error => {
  if (error.name === 'AbortError') throw error;
  tellGone();
  throw new Refusal({ code: 'stopped', charged: 'unknown', message: 'The studio was stopped.' });
};
const ask = async (path, body = {}, signal) => {
  const headers = { 'Content-Type': 'application/json', Authorization: 'Bearer ' + sessionStorage['dphist-token'] };
  const answer = await fetch('/api/' + path, { method: 'POST', cache: 'no-store', credentials: 'omit', signal, body: JSON.stringify(body), headers }).catch(gone);
  if (answer.ok) return answer;
  throw new Refusal((await answer.json().catch(() => ({}))).error || {}, answer.status);
};
export const post = async (path, body, signal) => (await ask(path, body, signal)).json().catch(gone);
export const download = async (path, body, name) => {
  const answer = await ask(path, body), given = /filename="([^"]+)"/.exec(answer.headers.get('Content-Disposition'));
  const a = h('a', { href: URL.createObjectURL(await answer.blob()), download: given?.[1] || name });
  a.click();
  setTimeout(() => URL.revokeObjectURL(a.href), 1e4);
};
// Of questions of one kind, only the newest runs: its signal stops the one before; `stop` stops it too.
export const latest = () => { let running; return stop => { running?.abort(); running = stop ? null : new AbortController(); return running?.signal; }; };
// An answer that comes line by line.
export const stream = async (path, body, signal, each) => {
  const reader = (await ask(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ''; ;) {
    const { value, done } = await reader.read().catch(gone);
    const lines = (rest + (value || '')).split('\n');
    rest = done ? '' : lines.pop();
    for (const line of lines) if (line) each(JSON.parse(line));
    if (done) return;
  }
};

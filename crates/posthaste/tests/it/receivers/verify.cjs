// Verifies the deliveries in cases.json with public libraries and the sample of the page.
const assert = require("node:assert/strict");
const { readFileSync } = require("node:fs");
const standard = require("standardwebhooks");
const svix = require("svix");
const sample = require("./sample.js");

const WRONG = 6 * 60; // seconds: a minute more than the tolerance
const now = Date.now;
// `new Date()` does not ask `Date.now`.
const RealDate = Date;
let off = 0;
globalThis.Date = class extends RealDate {
  constructor(...given) {
    super(...(given.length === 0 ? [now() + off * 1000] : given));
  }
  static now() {
    return now() + off * 1000;
  }
};

function byLibrary(library) {
  return (secret, headers, body) => {
    try {
      new library.Webhook(secret).verify(body.toString(), headers);
      return true;
    } catch (error) {
      // They parse the body once it is verified.
      if (error instanceof SyntaxError) return true;
      assert(error instanceof library.WebhookVerificationError, error);
      return false;
    }
  };
}

function bySample(secret, headers, body) {
  const [seen, worked] = [new Set(), []];
  const answers = [1, 2].map(() => sample.receive(secret, headers, body, seen, (one) => worked.push(one)));
  assert(answers[0] === answers[1] && [204, 401].includes(answers[0]), `${answers}`);
  assert.deepEqual(worked, answers[0] === 204 ? [body] : []);
  return answers[0] === 204;
}

const cases = JSON.parse(readFileSync("cases.json", "utf8"));
assert.equal(cases.length, 10);
const verifiers = { standardwebhooks: byLibrary(standard), svix: byLibrary(svix), sample: bySample };
for (const [name, isGenuine] of Object.entries(verifiers)) {
  for (const { name: what, headers, body: text, fits, others } of cases) {
    const [body, about] = [Buffer.from(text), `${name}: ${what}`];
    for (const secret of fits) {
      assert(isGenuine(secret, headers, body), about);
      for (const changed of [`${text} `, `${text.slice(0, -1)}?`, `x${text}`]) {
        assert(!isGenuine(secret, headers, Buffer.from(changed)), `${about}: a changed body`);
      }
      for (const header of ["webhook-id", "webhook-timestamp"]) {
        const value = headers[header].slice(0, -1) + (headers[header].endsWith("1") ? "2" : "1");
        assert(!isGenuine(secret, { ...headers, [header]: value }, body), `${about}: another ${header}`);
      }
      for (const header of ["webhook-id", "webhook-timestamp", "webhook-signature"]) {
        const { [header]: _, ...rest } = headers;
        assert(!isGenuine(secret, rest, body), `${about}: no ${header}`);
      }
      for (const [wrong, genuine] of [[WRONG, false], [-WRONG, false], [WRONG - 120, true], [120 - WRONG, true]]) {
        off = wrong;
        assert.equal(isGenuine(secret, headers, body), genuine, `${about}: a clock that is ${wrong} s wrong`);
        off = 0;
      }
    }
    for (const secret of others) assert(!isGenuine(secret, headers, body), `${about}: another secret`);
  }
}

// Prints what the search of the built site finds, best first: its own worker, run by Node.
//
//     node site_search.cjs WORKER.js search_index.json QUERY...
const fs = require("fs");
const [worker, index, ...queries] = process.argv.slice(2);
let listener = null;
global.self = global;
global.addEventListener = (_, f) => { listener = f; };
global.importScripts = () => {};
const waiting = [];
global.postMessage = (m) => { if (waiting.length) waiting.shift()(m); };
global.location = { href: "http://x/" };
(0, eval)(fs.readFileSync(worker, "utf8"));
const send = (data) => new Promise((done) => { waiting.push(done); listener({ data }); });
(async () => {
  const d = JSON.parse(fs.readFileSync(index, "utf8"));
  await send({ type: 0, data: { config: d.config, docs: d.docs, options: { suggest: false } } });
  for (const q of queries) {
    const a = await send({ type: 2, data: q });
    console.log(JSON.stringify({ q, found: (a.data.items || a.data).slice(0, 6).map((g) => [g[0].location, g[0].score]) }));
  }
})();

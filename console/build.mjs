// Bundles the console into the gateway's package, where its page is, and the page for judging into
// the command line's; records what they were built from.
//
//   node build.mjs        after `npm ci`; `make console` does both

import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { extname, join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const OUT = "../gateway_svc/console";
const BUILT = ["console.js", "style.css"];
// The page of `tandem golden judge`, which the command itself serves.
const JUDGE_OUT = "../tandem/cli/golden/page";
const JUDGE_BUILT = ["judge.css", "judge.js"];
const MAX_GZIP_BYTES = 60_000;

// Text files alone: their digest does not depend on the machine.
const SOURCES = [
  "src",
  "../protos/tandem/v1",
  "../clients/typescript/buf.gen.yaml",
  "../clients/typescript/package-lock.json",
  "build.mjs",
  "package.json",
  "package-lock.json",
  "tsconfig.json",
];

const options = {
  entryNames: "[name]",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  legalComments: "none",
  banner: { js: "// Contains packages of others: notices.txt" },
  plugins: [
    { name: "one-runtime", setup: resolveHere },
    { name: "no-json", setup: leaveOutJson },
    { name: "plain-descriptors", setup: writeDescriptorsPlainly },
  ],
  charset: "utf8",
};
await build({
  ...options,
  entryPoints: { console: "src/main.ts", style: "src/console.css" },
  outdir: OUT,
});
await build({
  ...options,
  banner: {},
  entryPoints: ["src/judge.ts", "src/judge.css"],
  outdir: JUDGE_OUT,
});

const built = await digests(OUT, BUILT);
const judge = await digests(JUDGE_OUT, JUDGE_BUILT);
const record = { sources: digestOf(await digests(".", await sourceFiles())), files: built, judge };
await writeFile("built.json", `${JSON.stringify(record, null, 2)}\n`);

let gzipBytes = 0;
for (const name of await filesBelow(OUT)) gzipBytes += gzipSync(await readFile(join(OUT, name))).length;
console.log(`${gzipBytes.toLocaleString("en")} bytes gzipped, of ${MAX_GZIP_BYTES.toLocaleString("en")}`);
if (gzipBytes > MAX_GZIP_BYTES) process.exit(1);

/** Resolves protobuf's runtime here, also for the messages of clients/typescript. */
function resolveHere({ onResolve, resolve }) {
  onResolve({ filter: /^@bufbuild\/protobuf/ }, ({ path, kind, pluginData }) =>
    pluginData === "here"
      ? undefined
      : resolve(path, { kind, resolveDir: import.meta.dirname, pluginData: "here" }),
  );
}

/**
 * Leaves out protobuf's JSON, a tenth of the bundle: connect-web imports it for a format that the
 * page never chooses.
 */
function leaveOutJson({ onLoad }) {
  onLoad({ filter: /@bufbuild\/protobuf\/dist\/esm\/(to|from)-json\.js$/ }, async ({ path }) => {
    const names = [...(await readFile(path, "utf8")).matchAll(/^export function (\w+)/gm)];
    const contents = names.map(
      ([, name]) => `export function ${name}() { throw new Error("${name} is not in this bundle"); }`,
    );
    return { contents: contents.join("\n"), loader: "js" };
  });
}

/** Writes the descriptors of messages as they are: of Base64, gzip finds no word again. */
function writeDescriptorsPlainly({ onLoad }) {
  onLoad({ filter: /_pb\.js$/ }, async ({ path }) => {
    const text = await readFile(path, "utf8");
    const contents = text.replace(
      /fileDesc\("([^"]+)"/,
      (_, base64) => `fileDesc(btoa(${JSON.stringify(Buffer.from(base64, "base64").toString("latin1"))})`,
    );
    return { contents, loader: "js" };
  });
}

async function sourceFiles() {
  const found = [];
  for (const name of SOURCES) {
    if (extname(name)) found.push(name);
    else found.push(...(await filesBelow(name)).map((each) => `${name}/${each}`));
  }
  return found;
}

async function filesBelow(folder) {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}

/** Returns each file's SHA-256, by name. */
async function digests(folder, names) {
  const pairs = [];
  for (const name of names.sort()) {
    pairs.push([name, createHash("sha256").update(await readFile(join(folder, name))).digest("hex")]);
  }
  return Object.fromEntries(pairs);
}

/** Returns one digest of all: of lines "digest  name", as sha256sum writes them. */
function digestOf(all) {
  const lines = Object.entries(all).map(([name, digest]) => `${digest}  ${name}\n`);
  return createHash("sha256").update(lines.join("")).digest("hex");
}

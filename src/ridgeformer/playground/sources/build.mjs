// Bundles the page: node build.mjs FOLDER_WITH_NODE_MODULES OUTPUT_FOLDER
//
// Writes page.html, and plot.js, the library of charts, which the report of the seed paper shares. Python puts the library,
// the core (built/core.wasm) and the models into the page: see ../__init__.py.

import { readFileSync, writeFileSync, existsSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const modules = resolve(process.argv[2], "node_modules");
const esbuild = createRequire(join(modules, "index.js"))("esbuild");
const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  write: false,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  metafile: true,
  nodePaths: [modules],
};
const worker = await esbuild.build({ ...common, entryPoints: ["worker.js"] });
const inline = {
  name: "worker-source",
  setup(build) {
    build.onResolve({ filter: /^worker-source$/ }, () => ({ path: "worker-source", namespace: "inline" }));
    build.onLoad({ filter: /.*/, namespace: "inline" }, () => ({ contents: worker.outputFiles[0].text, loader: "text" }));
  },
};
const library = await esbuild.build({ ...common, entryPoints: ["plot.js"], globalName: "Plot" });
const app = await esbuild.build({ ...common, entryPoints: ["app.js"], plugins: [inline] });
const style = await esbuild.build({ ...common, entryPoints: ["style.css"] });

/** The licences of the libraries in the bundle. */
function licences() {
  const used = Object.keys(library.metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
  const names = [...new Set(used.filter(Boolean))].sort();
  const texts = names.map((name) => {
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "license"].find((one) => existsSync(join(modules, name, one)));
    return `${name}\n\n${file ? readFileSync(join(modules, name, file), "utf8").trim() : "See its package."}\n`;
  });
  return texts.join("\n").replaceAll("*/", "* /");
}

/** Text that may stand in a script element. */
const inScript = (text) => text.trim().replaceAll("</script", "<\\/script");

const parts = { style: style.outputFiles[0].text.trim(), script: inScript(app.outputFiles[0].text) };
let page = readFileSync(join(here, "index.html"), "utf8");
for (const [name, text] of Object.entries(parts)) page = page.replace(`{{${name}}}`, () => text);
const output = resolve(process.argv[3]);
writeFileSync(join(output, "page.html"), page);
writeFileSync(join(output, "plot.js"), inScript(`/* Observable Plot and what it uses.\n\n${licences()}*/\n${library.outputFiles[0].text}`) + "\n");

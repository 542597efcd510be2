// Bundles the page: node build.mjs FOLDER_WITH_NODE_MODULES OUTPUT.html
//
// The output is one file. Python puts the core (built/core.wasm) and the models into it: see ../page.py.

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
const app = await esbuild.build({ ...common, entryPoints: ["app.js"], plugins: [inline] });
const style = await esbuild.build({ ...common, entryPoints: ["style.css"] });

/** The licences of the libraries in the bundle. */
function licences() {
  const used = Object.keys(app.metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]);
  const names = [...new Set(used.filter(Boolean))].sort();
  const texts = names.map((name) => {
    const file = ["LICENSE", "LICENSE.md", "LICENSE.txt", "license"].find((one) => existsSync(join(modules, name, one)));
    return `${name}\n\n${file ? readFileSync(join(modules, name, file), "utf8").trim() : "See its package."}\n`;
  });
  return texts.join("\n").replaceAll("</", "<\\/");
}

const parts = {
  style: style.outputFiles[0].text.trim(),
  licences: licences(),
  script: app.outputFiles[0].text.trim().replaceAll("</script", "<\\/script"),
};
let page = readFileSync(join(here, "index.html"), "utf8");
for (const [name, text] of Object.entries(parts)) page = page.replace(`{{${name}}}`, () => text);
writeFileSync(process.argv[3], page);

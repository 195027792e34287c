/**
 * The main script of the executable. It loads noria's code, which is in assets, part by part when something first needs it: so a
 * daemon holds no code of commands and features that it does not use.
 */
const { Script: PartScript } = require('node:vm');
const { getAsset, getAssetKeys, getRawAsset } = require('node:sea');

const loadedParts = new Map();

/** Takes the place of `require`, which in an executable knows only the modules of Node. */
function loadPart(name) {
  if (!name.startsWith('./')) return require(name);
  const known = loadedParts.get(name);
  if (known !== undefined) return known.exports;
  const part = { exports: {} };
  loadedParts.set(name, part);
  const key = `code/${name.slice(2)}`;
  const cache = `${key}.cache`; // absent if another platform compiled the executable
  const cachedData = getAssetKeys().includes(cache) ? Buffer.from(getRawAsset(cache)) : undefined;
  const script = new PartScript(getAsset(key, 'utf8'), { filename: name, cachedData });
  script.runInThisContext()(part.exports, loadPart, part, process.execPath);
  return part.exports;
}

loadPart('./noria.cjs');

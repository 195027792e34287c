/** Preloaded by npm's scripts: ends a Node that cannot run noria's TypeScript with one sentence instead of a stack. Itself runs on every Node. */
const { engines } = require('../package.json');

/** Whether `version` satisfies a range of `^a.b.c` and `>=a.b.c`, joined by `||`. */
function satisfies(version, range) {
  const given = numbersIn(version);
  return range.split('||').some((part) => {
    const wanted = numbersIn(part);
    return (part.includes('>=') || given[0] === wanted[0]) && !isBelow(given, wanted);
  });
}

function numbersIn(text) {
  return text.match(/\d+/g).slice(0, 3).map(Number);
}

function isBelow(one, other) {
  const at = one.findIndex((number, index) => number !== other[index]);
  return at >= 0 && one[at] < other[at];
}

if (!satisfies(process.versions.node, engines.node)) {
  process.stderr.write(
    `noria does not run on Node ${process.versions.node} (package.json: ${engines.node}): run npm ci without --ignore-scripts, ` +
      'which installs a Node for this checkout, or install Node 24.\n',
  );
  process.exit(2);
}

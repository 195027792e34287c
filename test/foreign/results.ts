/** Reads the results that the runners of other projects write. */
import type { TestResult } from './suite.ts';

const ENTITIES: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&' };

/** Reads JUnit's XML, as pytest and Node's test runner write it. */
export function readJunit(xml: string): TestResult[] {
  const byName = new Map<string, TestResult>();
  // pytest writes a second entry for a test whose teardown fails
  for (const test of casesIn(xml))
    if (byName.get(test.name)?.outcome !== 'failed') byName.set(test.name, test);
  return [...byName.values()];
}

function casesIn(xml: string): TestResult[] {
  const cases = xml.matchAll(/<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g);
  return [...cases].map(([, attributes = '', body = '']) => {
    const name = [attributeOf(attributes, 'classname'), attributeOf(attributes, 'name')]
      .filter(Boolean)
      .join('.');
    const failure = /<(failure|error)\b([^>]*)>/.exec(body);
    const outcome = failure ? 'failed' : /<skipped\b/.test(body) ? 'skipped' : 'passed';
    return { name, outcome, message: attributeOf(failure?.[2] ?? '', 'message') };
  });
}

/**
 * Reads the events of `go test -json`, one per line. Subtests count as tests; a test with subtests does not count
 * itself.
 */
export function readGoEvents(text: string): TestResult[] {
  const events = text
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line): GoEvent => JSON.parse(line));
  const output = new Map<string, string>();
  const ended: TestResult[] = [];
  for (const { Test: name, Action: action, Output: printed = '' } of events) {
    if (name === undefined) continue;
    const outcome = GO_OUTCOMES[action];
    if (outcome === undefined) output.set(name, (output.get(name) ?? '') + printed);
    else ended.push({ name, outcome, message: output.get(name) ?? '' });
  }
  const parents = new Set(ended.map(({ name }) => name.slice(0, Math.max(0, name.lastIndexOf('/')))));
  return ended.filter(({ name }) => !parents.has(name));
}

interface GoEvent {
  readonly Action: string;
  readonly Test?: string;
  readonly Output?: string;
}

const GO_OUTCOMES: Readonly<Record<string, TestResult['outcome']>> = {
  pass: 'passed',
  fail: 'failed',
  skip: 'skipped',
};

function attributeOf(attributes: string, name: string): string {
  const value = new RegExp(`\\b${name}="([^"]*)"`).exec(attributes)?.[1] ?? '';
  return value.replace(/&(?:#(x?)([\da-f]+)|(\w+));/gi, (whole, hex: string, code: string, name: string) =>
    code === undefined
      ? (ENTITIES[name] ?? whole)
      : String.fromCodePoint(Number.parseInt(code, hex ? 16 : 10)),
  );
}

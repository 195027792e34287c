/**
 * Prints answers as JSON, XML or Text, in the layouts that the specification describes and existing clients read. In
 * the Text format, a refusal is printed as JSON, because clients look for its `msg`. Source: the service's
 * specification, Resources and their fields.
 */
import { SUCCESS_CODE } from './codes.ts';
import type { AnswerFormat } from './operations.ts';

export type Value = string | number | boolean;
export type Entry = Readonly<Record<string, Value>>;

export interface Answer {
  readonly code: string;
  readonly msg: string;
  /** The result of an extraction: first the counters, then the proxies. */
  readonly data?: { readonly counters: Readonly<Record<string, number>>; readonly entries: readonly Entry[] };
  /** The result of operation 9 or 10, and the name of the list in the answer. */
  readonly list?: { readonly name: 'serverList' | 'instance_list'; readonly items: readonly Entry[] };
}

export interface Layout {
  readonly format: AnswerFormat;
  /** Prints a proxy as one line of the Text format. */
  readonly line: (entry: Entry) => string;
  /** The names of the fields of each proxy in JSON and XML; absent: all fields. */
  readonly fields?: readonly string[] | undefined;
}

export interface Printed {
  readonly body: string;
  readonly contentType: string;
}

const CONTENT_TYPES: Readonly<Record<AnswerFormat, string>> = {
  json: 'application/json; charset=utf-8',
  xml: 'text/xml; charset=utf-8',
  text: 'text/plain; charset=utf-8',
};

export function print(answer: Answer, { format, line, fields }: Layout): Printed {
  if (format === 'xml')
    return { body: printXml(selectFields(answer, fields)), contentType: CONTENT_TYPES.xml };
  if (format === 'text' && answer.code === SUCCESS_CODE && answer.data !== undefined) {
    return { body: answer.data.entries.map(line).join('\r\n'), contentType: CONTENT_TYPES.text };
  }
  return { body: printJson(selectFields(answer, fields)), contentType: CONTENT_TYPES[format] };
}

function selectFields(answer: Answer, fields: readonly string[] | undefined): Answer {
  if (answer.data === undefined || fields === undefined) return answer;
  const entries = answer.data.entries.map((entry) =>
    Object.fromEntries(Object.entries(entry).filter(([name]) => fields.includes(name))),
  );
  return { ...answer, data: { ...answer.data, entries } };
}

/** Returns the usual line of a paid product: `ip:port`. */
export function plainLine({ ip, port }: Entry): string {
  return `${ip}:${port}`;
}

/** Returns the usual line of the free product: `[level]ip:port@protocol#location`. */
export function freeLine({ level, ip, port, protocol, adr }: Entry): string {
  return `[${level}]${ip}:${port}@${protocol}#${adr}`;
}

/**
 * Returns a function that prints a line in a custom format. It replaces each `{tag}` by the field of this name, and
 * does not change unknown tags.
 */
export function customLine(layout: string): (entry: Entry) => string {
  return (entry) => layout.replace(/\{(\w+)\}/g, (tag, name: string) => String(entry[name] ?? tag));
}

function printJson({ code, msg, data, list }: Answer): string {
  return JSON.stringify({
    code,
    msg,
    ...(data && { data: { count: data.entries.length, ...data.counters, proxy_list: data.entries } }),
    ...(list && { [list.name]: list.items }),
  });
}

function printXml({ code, msg, data }: Answer): string {
  const counters = data && { count: data.entries.length, ...data.counters };
  const proxies = data?.entries.map((entry) => element('proxy', elements(entry))).join('') ?? '';
  const body = counters && element('data', elements(counters) + element('proxy_list', proxies));
  return `<?xml version="1.0" encoding="utf-8"?>\n${element('result', elements({ code, msg }) + (body ?? ''))}\n`;
}

function elements(fields: Readonly<Record<string, Value>>): string {
  return Object.entries(fields)
    .map(([name, value]) => element(name, escapeXml(String(value))))
    .join('');
}

function element(name: string, content: string): string {
  return `<${name}>${content}</${name}>`;
}

function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

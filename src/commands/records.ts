/** Prints records of the service: a table for people, an array in the service's own field names for scripts. */
import { formatTable } from './table.ts';
import type { Terminal } from './terminal.ts';

export function printRecords(
  records: readonly Readonly<Record<string, string | number | boolean>>[],
  fields: readonly string[],
  json: boolean,
  terminal: Terminal,
): void {
  if (json) {
    terminal.print(JSON.stringify(records, undefined, 2));
    return;
  }
  const columns = fields.map((field) => ({ title: field.toUpperCase() }));
  const rows = records.map((record) => fields.map((field) => String(record[field] ?? '')));
  for (const line of formatTable(columns, rows)) terminal.print(line);
  if (records.length === 0) terminal.tell('nothing matches');
}

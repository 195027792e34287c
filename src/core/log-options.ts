/** Log levels and formats. They are not in log.ts, so that commands without a log do not load pino. */

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];
/** `auto` means `pretty` if standard error is a terminal, else `json`. */
export const LOG_FORMATS = ['auto', 'json', 'pretty'] as const;

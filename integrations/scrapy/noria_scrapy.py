"""Scrapy through noria: a tag for each request, a verdict for each response, and the exit in response.meta.

    DOWNLOADER_MIDDLEWARES = {"noria_scrapy.NoriaMiddleware": 740}
    NORIA_PROXY = "http://me:x@localhost:8888"

A spider decides what a ban is with `def is_banned(self, request, response)`; without it, 403 and 429 are bans. noria then uses the
exit no more for the site, and the request is repeated through another one, at most NORIA_RETRIES times (default 5).
A request with its own meta["proxy"] is left alone. meta["noria_session"] keeps one exit for all requests with the same value.
"""

import itertools
import json
import secrets
from urllib.parse import quote, urlsplit

from scrapy import Request
from scrapy.utils.defer import maybe_deferred_to_future

DESK = "http://noria.invalid"


class NoriaMiddleware:
    def __init__(self, crawler):
        self.crawler = crawler
        self.proxy = urlsplit(crawler.settings.get("NORIA_PROXY", "http://me:x@localhost:8888"))
        self.retries = crawler.settings.getint("NORIA_RETRIES", 5)
        self.run = secrets.token_hex(4)
        self.numbers = itertools.count()

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def process_request(self, request, spider=None):
        if request.url.startswith(DESK) or ("proxy" in request.meta and "noria_name" not in request.meta):
            return
        session = request.meta.get("noria_session")
        option = f"tag-{self.run}.{next(self.numbers)}" if session is None else f"session-{session}"
        request.meta["noria_name"] = option
        request.meta["proxy"] = self._proxy(option)

    async def process_response(self, request, response, spider=None):
        option = request.meta.get("noria_name")
        if option is None or request.url.startswith(DESK):
            return response
        host = quote(urlsplit(request.url).hostname)
        spider = spider or self.crawler.spider
        banned = getattr(spider, "is_banned", lambda request, response: response.status in (403, 429))
        if not banned(request, response):
            state = json.loads((await self._ask(option, "/")).text)
            request.meta["noria_exit"] = state["exit"]
            return response
        await self._ask(option, f"/banned?host={host}")
        count = request.meta.get("noria_retries", 0) + 1
        if count > self.retries:
            return response
        self.crawler.stats.inc_value("noria/bans")
        return request.replace(dont_filter=True, meta={**request.meta, "noria_retries": count})

    async def _ask(self, option, path):
        meta = {"proxy": self._proxy(option), "dont_retry": True, "handle_httpstatus_all": True}
        request = Request(DESK + path, meta=meta, dont_filter=True)
        engine = self.crawler.engine
        if hasattr(engine, "download_async"):  # Scrapy 2.14
            return await engine.download_async(request)
        return await maybe_deferred_to_future(engine.download(request))

    def _proxy(self, option):
        user = f"{self.proxy.username or ''}-{option}"
        return f"{self.proxy.scheme}://{user}:{self.proxy.password or 'x'}@{self.proxy.hostname}:{self.proxy.port}"

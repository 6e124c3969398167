"""A feed: FastAPI writes to PostgreSQL, and reads timelines from Pequod."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import asyncpg
from fastapi import Cookie, FastAPI, Path, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse

import pequod

#: A name of a user is a part of keys, so it has no `|`.
Name = Annotated[str, Path(pattern=r"^[a-z0-9_]{1,20}$")]
#: What a browser has seen: a token of Pequod, which the reply to each call renews.
Seen = Annotated[str | None, Cookie()]


@asynccontextmanager
async def connected(app: FastAPI) -> AsyncIterator[None]:
    async with (
        asyncpg.create_pool(os.environ["DATABASE"]) as app.state.database,
        pequod.AsyncClient(os.environ.get("PEQUOD_TARGET", "127.0.0.1:7744")) as app.state.cache,
    ):
        yield


app = FastAPI(lifespan=connected)


@app.exception_handler(pequod.errors.InvalidTokenError)
@app.exception_handler(pequod.errors.TokenLostError)
async def forget(request: Request, _: Exception) -> Response:
    """Have a browser come again without a cookie of a state that is gone, as after a failover that lost commits."""
    again = RedirectResponse(request.url)
    again.delete_cookie("seen")
    return again


async def write(request: Request, response: Response, statement: str, *values: object) -> Any:
    """Run a statement, and note in the cookie the state that it left. Return the first value of its first row."""
    async with request.app.state.database.acquire() as connection:
        value = await connection.fetchval(statement, *values)
        response.set_cookie("seen", str(await pequod.token_of(connection)))
        return value


@app.post("/{reader}/follows/{author}")
async def follow(reader: Name, author: Name, request: Request, response: Response) -> None:
    await write(request, response, "INSERT INTO follows VALUES ($1, $2) ON CONFLICT DO NOTHING", reader, author)


@app.post("/{reader}/mutes/{author}")
async def mute(reader: Name, author: Name, request: Request, response: Response) -> None:
    await write(request, response, "INSERT INTO mutes VALUES ($1, $2) ON CONFLICT DO NOTHING", reader, author)


@app.post("/{author}/posts")
async def post(author: Name, body: str, request: Request, response: Response) -> dict[str, int]:
    statement = """
        INSERT INTO posts (author, body) VALUES ($1, $2)
        RETURNING (extract(epoch FROM written) * 1e6)::bigint
    """
    return {"written": await write(request, response, statement, author, body)}


@app.post("/{reader}/likes/{author}/{written}")
async def like(reader: Name, author: Name, written: int, request: Request, response: Response) -> None:
    statement = """
        INSERT INTO likes SELECT author, written, $1 FROM posts
        WHERE author = $2 AND written = timestamptz 'epoch' + $3::bigint * interval '1 microsecond'
        ON CONFLICT DO NOTHING
    """
    await write(request, response, statement, reader, author, written)


@app.get("/{reader}/timeline")
async def timeline(
    reader: Name, request: Request, response: Response, before: int | None = None, seen: Seen = None
) -> list[dict[str, str | int]]:
    """Return the newest 20 posts of a timeline, or the 20 before an instant, with their likes."""
    session = request.app.state.cache.session(seen)
    last = f"timeline|{reader}}}" if before is None else f"timeline|{reader}|{before:016}"
    rows = await session.scan(f"timeline|{reader}|", last, limit=20, reverse=True)
    shown = [(*key.decode().split("|")[2:], body.decode()) for key, body in rows]
    likes = await session.multi_get([f"likes|{author}|{written}" for written, author, _ in shown])
    response.set_cookie("seen", str(session.token))
    return [
        {"author": author, "written": int(written), "body": body, "likes": int(count or 0)}
        for (written, author, body), count in zip(shown, likes, strict=True)
    ]


@app.get("/{reader}/timeline/live")
async def live(reader: Name, request: Request) -> StreamingResponse:
    """Send what comes into a timeline, as Server-Sent Events."""

    async def events() -> AsyncIterator[str]:
        watch = request.app.state.cache.watch(f"timeline|{reader}|", f"timeline|{reader}}}", progress_s=15)
        async for event in watch:
            # The first event says that the watch stands, later ones without changes say that it still does.
            if not event.changes:
                yield ": alive\n\n"
            for change in event.changes:
                if change.new is not None:
                    author = change.key.decode().split("|")[3]
                    yield f"data: {author}: {change.new.decode()}\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")

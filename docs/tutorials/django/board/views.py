"""The pages: what changes goes to PostgreSQL, what is shown comes from Pequod."""

import json

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.http import require_GET, require_POST

import pequod
from board.models import Member, Story, Vote


@require_POST
def submit(request: HttpRequest, name: str) -> JsonResponse:
    """Note a new story, with its author's vote."""
    with transaction.atomic():
        author, _ = Member.objects.get_or_create(name=name)
        story = Story.objects.create(author=author, title=request.POST["title"])
        Vote.objects.create(story=story, member=author)
    return JsonResponse({"story": story.pk})


@require_POST
def vote(request: HttpRequest, name: str, story: int) -> JsonResponse:
    """Note a vote; a second one of the same member changes nothing."""
    member, _ = Member.objects.get_or_create(name=name)
    _, is_new = Vote.objects.get_or_create(story_id=story, member=member)
    return JsonResponse({"counted": is_new})


@require_GET
def front(request: HttpRequest) -> JsonResponse:
    """Show the ten stories with the most votes."""
    best = request.pequod.scan(prefix="front|", limit=10, reverse=True)
    numbers = [key.decode().split("|")[2] for key, _ in best]
    stories = [json.loads(record) for record in request.pequod.multi_get([f"story|{n}" for n in numbers])]
    shown = [
        {"story": int(number), "title": story["title"], "author": story["author_id"], "votes": int(votes)}
        for number, story, (_, votes) in zip(numbers, stories, best, strict=True)
    ]
    return JsonResponse(shown, safe=False)


@require_GET
def member(request: HttpRequest, name: str) -> JsonResponse:
    """Show the votes that the stories of a member have got."""
    return JsonResponse({"name": name, "karma": int(request.pequod.get(f"karma|{name}") or 0)})


@require_GET
def rank(request: HttpRequest, votes: int) -> JsonResponse:
    """Show the place of a story that has this number of votes."""
    better = request.pequod.count(f"front|{pequod.encode_i64(votes + 1)}", "front}")
    return JsonResponse({"votes": votes, "rank": better + 1})

"""What the board keeps in PostgreSQL."""

from django.core.validators import validate_slug
from django.db import models


class Member(models.Model):
    """One who writes and votes. The name is a part of keys, so it has no `|`."""

    name = models.CharField(primary_key=True, max_length=20, validators=[validate_slug])


class Story(models.Model):
    author = models.ForeignKey(Member, models.CASCADE)
    title = models.CharField(max_length=200)


class Vote(models.Model):
    story = models.ForeignKey(Story, models.CASCADE)
    member = models.ForeignKey(Member, models.CASCADE)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["story", "member"], name="one_vote"),)

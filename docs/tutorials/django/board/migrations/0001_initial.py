"""Make the tables."""

from typing import ClassVar

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Member",
            fields=[
                (
                    "name",
                    models.CharField(
                        max_length=20,
                        primary_key=True,
                        serialize=False,
                        validators=[django.core.validators.validate_slug],
                    ),
                ),
            ],
        ),
        migrations.CreateModel(
            name="Story",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("title", models.CharField(max_length=200)),
                ("author", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="board.member")),
            ],
        ),
        migrations.CreateModel(
            name="Vote",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("member", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="board.member")),
                ("story", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="board.story")),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("story", "member"), name="one_vote")]},
        ),
    ]

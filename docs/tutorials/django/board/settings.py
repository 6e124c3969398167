"""The settings of the project, with what it needs and no more."""

import os

SECRET_KEY = os.environ.get("DJANGO_SECRET_KEY", "for a tutorial alone")
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "board.urls"
INSTALLED_APPS = ["board"]
MIDDLEWARE = ["board.cache.seen"]
# Host, user and password come from PGHOST, PGUSER and PGPASSWORD, as for psql.
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ.get("PGDATABASE", "board")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True

PEQUOD_TARGET = os.environ.get("PEQUOD_TARGET", "127.0.0.1:7744")

"""Which page is where."""

from django.urls import path

from board import views

urlpatterns = [
    path("", views.front),
    path("members/<slug:name>", views.member),
    path("members/<slug:name>/stories", views.submit),
    path("members/<slug:name>/votes/<int:story>", views.vote),
    path("rank/<int:votes>", views.rank),
]

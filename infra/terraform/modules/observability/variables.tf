variable "name" {
  description = "What the names of alarms begin with."
  type        = string
}

variable "functions" {
  description = "Names of the functions."
  type        = list(string)
}

variable "api_name" {
  description = "Name of the API."
  type        = string
}

variable "api_stage" {
  description = "Name of its stage."
  type        = string
}

variable "queue_name" {
  description = "Name of the queue of events."
  type        = string
}

variable "dead_letters_name" {
  description = "Name of the queue of dead letters."
  type        = string
}

variable "kms_key_arn" {
  description = "Key for the topic of alarms; null: that of AWS."
  type        = string
  default     = null
}

variable "oldest_event_seconds" {
  description = "Age of an event in the queue that is an alarm: commits are behind."
  type        = number
  default     = 120
}
